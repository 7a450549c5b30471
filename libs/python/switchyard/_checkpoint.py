"""Checkpoints that are whole or absent, and that know how far training had come when they were taken.

A checkpoint's file and its progress must change together, or a kill between the two repeats or skips an epoch.
Two files cannot be renamed at once, so the progress file holds the old entry and the new one, each tied to the
exact file it belongs to, and is written before the checkpoint is renamed into place.
"""

import glob
import json
import os
import pickle
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

LEFTOVER_AGE_SECONDS = 3600.0
PROGRESS_SUFFIX = ".progress.json"


class Progress(NamedTuple):
    """How far training had come: whole epochs, optimizer steps since the job's first start, and the part of an epoch.

    noise are the running averages of the gradient noise, if the checkpoint has them. epoch_step and epoch_samples count
    the steps of the epoch after the whole ones, and their samples in all processes.
    """

    epochs_done: int
    steps: int
    noise: Optional[List[float]] = None
    epoch_step: int = 0
    epoch_samples: int = 0

    def position(self) -> Tuple[int, int]:
        """What orders checkpoints."""
        return self.epochs_done, self.steps


def write(path: Path, content: Any, progress: Progress) -> int:
    """Puts content at path in one atomic step and returns its size in bytes.

    A callable content is called with the path of a temporary file (same suffix) to write; anything else is pickled.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(path)
    temporary = path.with_name(".%d-%s" % (os.getpid(), path.name))
    try:
        _fill(temporary, content)
        _sync(temporary)
        status = os.stat(temporary)
        _write_progress(path, status, progress)
        os.replace(temporary, path)
        _sync(path.parent)
        return status.st_size
    finally:
        if temporary.exists():
            temporary.unlink()


def read(path: Path, reader: Optional[Callable[[str], Any]] = None) -> Any:
    """What write put at path: unpickled, or reader(path). Raises FileNotFoundError where there is none."""
    if reader is not None:
        if not path.exists():
            raise FileNotFoundError(str(path))
        return reader(str(path))
    with open(path, "rb") as file:
        return pickle.load(file)


def any_in(folder: Path) -> bool:
    """Whether something was saved in folder, by write or in another way. What a killed write left does not count."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # nobody knows
    return any(not name.startswith(".") and not name.endswith(PROGRESS_SUFFIX) for name in names)


def progress_of(path: Path) -> Optional[Progress]:
    """The progress written with the checkpoint that is at path now; None where it is not known.

    A copied checkpoint is another file than the one noted; then the newest entry is the best there is.
    """
    entries = _entries(path)
    if not entries or not path.exists():
        return None
    identity = _identity(os.stat(path))
    matching = [entry for entry in entries if entry.get("file") == identity]
    entry = (matching or entries)[-1]
    within = entry.get("epoch_step", 0), entry.get("epoch_samples", 0)
    return Progress(entry["epochs_done"], entry["steps"], entry.get("noise"), *within)


def _remove_leftovers(path: Path) -> None:
    """Removes what killed writers left, once it is too old to belong to one that still writes."""
    for leftover in path.parent.glob(".[0-9]*-" + glob.escape(path.name) + "*"):
        try:
            if time.time() - leftover.stat().st_mtime > LEFTOVER_AGE_SECONDS:
                leftover.unlink()
        except OSError:
            continue


def _fill(temporary: Path, content: Any) -> None:
    if callable(content):
        content(str(temporary))
        return
    with open(temporary, "wb") as file:
        pickle.dump(content, file, protocol=4)


def _write_progress(path: Path, status: os.stat_result, progress: Progress) -> None:
    new = dict(progress._asdict(), file=_identity(status))
    kept: List[Dict[str, Any]] = []
    if path.exists():
        current = _identity(os.stat(path))
        kept = [entry for entry in _entries(path) if entry.get("file") == current][-1:]
    temporary = path.with_name(".%d-%s.progress" % (os.getpid(), path.name))
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(kept + [new], file)
    _sync(temporary)
    os.replace(temporary, _progress_path(path))


def _entries(path: Path) -> List[Dict[str, Any]]:
    try:
        with open(_progress_path(path), encoding="utf-8") as file:
            entries = json.load(file)
        return [entry for entry in entries if {"epochs_done", "steps"} <= set(entry)]
    except (OSError, ValueError, TypeError):
        return []


def _progress_path(path: Path) -> Path:
    return path.with_name(path.name + PROGRESS_SUFFIX)


def _identity(status: os.stat_result) -> List[int]:
    return [status.st_ino, status.st_size, status.st_mtime_ns]


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
