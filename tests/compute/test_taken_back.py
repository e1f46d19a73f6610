"""A method that fails leaves its estimator as it was."""

import inspect

import pytest

from sklearn_mmdinit._compute import all_or_nothing


class Counter:
    def __init__(self):
        self.kept = [1]

    @all_or_nothing
    def fit(self, error=None, *, new=2):
        """Says what it does."""
        self.kept, self.new_ = [new], new
        if error is not None:
            raise error
        return self


def test_what_succeeds_is_kept():
    counter = Counter().fit(new=3)
    assert vars(counter) == {"kept": [3], "new_": 3}


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
def test_what_fails_or_is_interrupted_is_taken_back(error):
    counter = Counter()
    kept = counter.kept
    with pytest.raises(type(error)):
        counter.fit(error)
    assert vars(counter) == {"kept": [1]}
    assert counter.kept is kept
    counter.fit(new=3)
    with pytest.raises(type(error)):
        counter.fit(error, new=4)
    assert vars(counter) == {"kept": [3], "new_": 3}


def test_the_method_looks_as_before():
    assert list(inspect.signature(Counter.fit).parameters) == ["self", "error", "new"]
    assert Counter.fit.__doc__ == "Says what it does."
