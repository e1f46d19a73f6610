"""The README's own code runs as it stands there, and no document links to what is not there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLE = re.findall(r"```python\n(.*?)```", README, re.DOTALL)[0]


def test_first_example_runs(capsys):
    exec(compile(EXAMPLE, "README.md", "exec"), {"__name__": "readme"})
    accuracy = float(capsys.readouterr().out)
    # Ten classes: chance is 0.1.
    assert 0.85 < accuracy < 1.0


def test_first_example_is_about_ten_lines():
    assert len([line for line in EXAMPLE.splitlines() if line.strip()]) <= 10


@pytest.mark.parametrize("needle", ["mnist_tasks.py", "pytest"])
def test_two_complete_commands(needle):
    blocks = re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
    (command,) = [block for block in blocks if needle in block]
    assert command.count("\n") == 1
    assert command.startswith("python3.11 -m venv")
    assert "-c constraints.txt" in command


def _anchors(document):
    """GitHub's names of a document's headings."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "document", ["README.md", "benchmarks/results/README.md", "benchmarks/results/REPORT.md"]
)
def test_links_to_files_of_the_project_are_not_broken(document):
    document = ROOT / document
    links = re.findall(r"\]\((?!https?:)([^)]+)\)", document.read_text(encoding="utf-8"))
    targets = [link.partition("#") for link in links]
    assert targets
    missing = [path for path, _, _ in targets if not (document.parent / path).exists()]
    assert not missing
    for path, _, anchor in targets:
        assert not anchor or anchor in _anchors(document.parent / path if path else document)
