"""A checkpoint is whole or absent, and its progress always belongs to it, wherever its writer is killed."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from switchyard import _checkpoint
from switchyard._checkpoint import Progress
from tests import jobapi

# Kills itself just before the given call of os.replace (1: progress, 2: checkpoint), or in the middle of writing.
KILLED_WRITER = """
import os, signal, sys
from pathlib import Path
from switchyard import _checkpoint
path, when = Path(sys.argv[1]), sys.argv[2]
replace, calls = os.replace, []
def killed_replace(*arguments):
    calls.append(arguments)
    if str(len(calls)) == when:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(*arguments)
os.replace = killed_replace
def content(temporary):
    with open(temporary, "w") as file:
        file.write("new")
        file.flush()
        if when == "middle":
            os.kill(os.getpid(), signal.SIGKILL)
_checkpoint.write(path, content, _checkpoint.Progress(2, 20))
"""


class Writing(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name, "deeper", "state.bin")

    def read(self):
        return _checkpoint.read(self.path, lambda path: Path(path).read_text())

    def write(self, text, epochs_done):
        progress = Progress(epochs_done, 10 * epochs_done)
        return _checkpoint.write(self.path, lambda path: Path(path).write_text(text), progress)

    def test_objects_are_pickled(self):
        content = {"weights": [1.5, 2.5], "name": "x"}
        size_bytes = _checkpoint.write(self.path, content, Progress(1, 10))
        self.assertEqual(self.path.stat().st_size, size_bytes)
        self.assertEqual(content, _checkpoint.read(self.path))

    def test_a_callable_writes_a_file_of_the_same_suffix(self):
        seen = []
        _checkpoint.write(self.path, lambda path: (seen.append(path), Path(path).write_text("x")), Progress(1, 10))
        self.assertTrue(seen[0].endswith("state.bin"))
        self.assertEqual(["state.bin", "state.bin.progress.json"], sorted(os.listdir(self.path.parent)))

    def test_a_failing_writer_changes_nothing(self):
        self.write("old", 1)

        def fail(path):
            Path(path).write_text("ne")
            raise OSError("disk full")

        with self.assertRaisesRegex(OSError, "disk full"):
            _checkpoint.write(self.path, fail, Progress(2, 20))
        self.assertEqual(("old", Progress(1, 10)), (self.read(), _checkpoint.progress_of(self.path)))
        self.assertEqual(["state.bin", "state.bin.progress.json"], sorted(os.listdir(self.path.parent)))

    def test_killed_anywhere_old_or_new_but_never_mixed(self):
        for when, want in (
            ("middle", ("old", Progress(1, 10))),
            ("1", ("old", Progress(1, 10))),
            ("2", ("old", Progress(1, 10))),
            ("never", ("new", Progress(2, 20))),
        ):
            with self.subTest(when=when):
                shutil.rmtree(self.path.parent, ignore_errors=True)
                self.write("old", 1)
                done = subprocess.run(
                    [sys.executable, "-c", KILLED_WRITER, str(self.path), when],
                    env={"PYTHONPATH": str(jobapi.LIBRARY)},
                )
                self.assertEqual(0 if when == "never" else -signal.SIGKILL, done.returncode)
                self.assertEqual(want, (self.read(), _checkpoint.progress_of(self.path)))
                self.write("later", 3)
                self.assertEqual(("later", Progress(3, 30)), (self.read(), _checkpoint.progress_of(self.path)))

    def test_a_first_write_that_was_killed_leaves_no_checkpoint(self):
        for when in ("middle", "1", "2"):
            with self.subTest(when=when):
                self.path.parent.mkdir(exist_ok=True)
                subprocess.run(
                    [sys.executable, "-c", KILLED_WRITER, str(self.path), when],
                    env={"PYTHONPATH": str(jobapi.LIBRARY)},
                )
                self.assertIsNone(_checkpoint.progress_of(self.path))
                for reader in (None, str):
                    with self.assertRaises(FileNotFoundError):
                        _checkpoint.read(self.path, reader)

    def test_leftovers_go_once_they_are_old(self):
        self.path.parent.mkdir()
        old, young, foreign = (self.path.with_name(n) for n in (".1-state.bin", ".2-state.bin", ".3-other.bin"))
        for file in (old, young, foreign):
            file.write_text("x")
        for file in (old, foreign):
            os.utime(file, (1, 1))
        self.write("new", 1)
        self.assertEqual([False, True, True], [file.exists() for file in (old, young, foreign)])

    def test_a_copied_checkpoint_keeps_its_progress(self):
        self.write("old", 1)
        self.write("new", 2)
        moved = self.path.parent.with_name("moved")
        shutil.copytree(self.path.parent, moved)
        self.assertEqual(Progress(2, 20), _checkpoint.progress_of(moved / self.path.name))

    def test_damaged_progress_is_unknown_progress(self):
        self.write("old", 1)
        progress = self.path.with_name("state.bin.progress.json")
        for text in ("", "{", "[]", "[1]", '[{"steps":1}]', "{}"):
            with self.subTest(text=text):
                progress.write_text(text)
                self.assertIsNone(_checkpoint.progress_of(self.path))

    def test_all_is_on_disk_before_the_names_change(self):
        order = []
        with mock.patch.object(_checkpoint.os, "fsync", side_effect=lambda _: order.append("sync")):
            with mock.patch.object(_checkpoint.os, "replace", side_effect=lambda *_: order.append("replace")):
                self.write("new", 1)
        self.assertEqual(["sync", "sync", "replace", "replace", "sync"], order)


if __name__ == "__main__":
    unittest.main()
