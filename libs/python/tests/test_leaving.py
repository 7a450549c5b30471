"""What a process says when it exits without a ``with`` block."""

import tempfile
import unittest
from pathlib import Path

from tests import jobapi

PLAIN = """
import os, sys, switchyard
job = switchyard.job()
while job.epochs_done < job.epochs_total and not job.should_stop():
    job.step(loss=1.0)
    job.end_epoch()
    %s
"""


class Leaving(unittest.TestCase):
    def test_the_end_is_reported_once_and_only_when_it_is_known(self):
        cases = [
            ("finished", "pass", False, [("finished", 3)], 0),
            ("stopped", "pass", True, [("stopped", 1)], 0),
            ("crashed", "raise RuntimeError", False, [], 1),
            ("a forked child is silent", "os.fork() or sys.exit()", False, [("finished", 3)], 0),
        ]
        for name, body, stop, ends, status in cases:
            with self.subTest(name), tempfile.TemporaryDirectory() as folder, jobapi.serve() as api:
                api.control = dict(api.control, stop=stop)
                script = Path(folder, "plain.py")
                script.write_text(PLAIN % body)
                done = jobapi.run_script(script, jobapi.variables(folder, SWITCHYARD_JOB_API=api.url))
                self.assertEqual(status, done.returncode, done.stderr)
                self.assertEqual(ends, [(end["outcome"], end["epochs_done"]) for end in api.bodies("end")])
                self.assertEqual(max(1, ends[0][1] if ends else 1), len(api.bodies("epochs")))


if __name__ == "__main__":
    unittest.main()
