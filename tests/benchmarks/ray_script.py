"""The command on a ray cluster of its own, one of whose workers is killed on the way.

    python ray_script.py OUTPUT

It prints what it saw as JSON, on its last line.
"""

import json
import sys

import psutil
import ray

import mnist_tasks
from engine_helpers import TINY
from engines.threads import threads
from protocol.store import ScoreLog


def workers():
    family = psutil.Process().children(recursive=True)
    return [process for process in family if process.name().startswith("ray::PoolActor")]


def main(output):
    puts, kept, killed = [], [], []
    append, put = ScoreLog.append, ray.put

    def append_and_kill(self, record):
        append(self, record)
        kept.append(record["key"])
        if len(kept) == 2:
            victim = workers()[0]
            victim.kill()
            killed.append(victim.pid)

    def counted(value):
        puts.append(type(value).__name__)
        return put(value)

    ScoreLog.append, ray.put = append_and_kill, counted
    with threads(1):
        status = mnist_tasks.main([*TINY, "--backend", "ray", "--jobs", "2", "--output", output])
    return {"status": status, "puts": sorted(puts), "kept": kept, "killed": killed}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
