"""A record of its own of which process trained what, apart from the scheduler: the oracle of tests that kill things.

Where TRAIN_LEDGER names a file, one JSON line per event is appended in a single write, so that lines of
several processes never mix. A process that was killed outright leaves no exit line; one that got SIGTERM does.
"""

import contextlib
import json
import os
import signal
import sys
import time
from typing import Any, Iterator


class Ledger:
    """Appends lines; does nothing where no file is named."""

    def __init__(self, rank: int):
        self._path = os.environ.get("TRAIN_LEDGER", "")
        self._identity = {
            "job": os.environ.get("SWITCHYARD_JOB") or os.environ.get("JOB_UUID", ""),
            "attempt": int(os.environ.get("SWITCHYARD_ATTEMPT") or 0),
            "pid": os.getpid(),
            "rank": rank,
            "devices": os.environ.get("SWITCHYARD_DEVICES") or os.environ.get("CUDA_VISIBLE_DEVICES", ""),
        }
        self._epoch = 0

    def epoch(self, epochs_done: int) -> None:
        """An epoch is trained and its checkpoint written."""
        self._write("epoch", epochs_done)

    @contextlib.contextmanager
    def running(self, epochs_done: int) -> Iterator[None]:
        """Writes start, and exit on every way out that lets Python run."""
        signal.signal(signal.SIGTERM, _leave)
        self._write("start", epochs_done)
        try:
            yield
        finally:
            self._write("exit", self._epoch)

    def _write(self, event: str, epochs_done: int) -> None:
        self._epoch = epochs_done
        if not self._path:
            return
        line = dict(self._identity, event=event, epoch=epochs_done, unix_seconds=time.time())
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, json.dumps(line).encode() + b"\n")
        finally:
            os.close(descriptor)


def _leave(signal_number: int, _: Any) -> None:
    sys.exit(128 + signal_number)
