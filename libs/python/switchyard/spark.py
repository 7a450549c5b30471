"""Starts a program on Spark so that it can pause: python -m switchyard.spark spark-submit .. program.py ..

The line is that of spark-submit. The program, which need not know of it, saves its state after each epoch in the job's
folder of checkpoints, goes on from the newest state there, and its executors are billed to the job on whatever node
they run. So the scheduler may stop it after an epoch and start it again with other executors.
"""

import os
import sys
from pathlib import Path
from typing import List, Sequence

_FLAGS = ("-v", "--verbose", "--supervise")
"""The options of spark-submit that take no value."""


def command(line: Sequence[str]) -> List[str]:
    """The command line that runs the program of a line of spark-submit with checkpoints."""
    at = 1
    while at < len(line) and line[at].startswith("-"):
        at += 1 if line[at] in _FLAGS or "=" in line[at] else 2
    if at >= len(line) or not line[at].endswith(".py"):
        raise SystemExit("switchyard.spark: want spark-submit, its options and a Python program, found: %s" % " ".join(line))
    runner = str(Path(__file__).resolve().with_name("_spark_program.py"))
    return list(line[:at]) + [runner] + list(line[at:])


if __name__ == "__main__":
    words = command(sys.argv[1:])
    os.execvp(words[0], words)
