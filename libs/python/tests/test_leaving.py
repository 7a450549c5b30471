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

WITHIN = """
import os, sys, switchyard
with switchyard.job() as job:
    for epoch in job.epochs():
        for step in job.steps(range(4)):
            if epoch == 1 and step == 2:
                child = os.fork()
                if child == 0:
                    %s
                os.waitpid(child, 0)
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

    def test_a_forked_child_that_leaves_the_context_is_silent(self):
        for body in "raise RuntimeError", "sys.exit(0)", "sys.exit(3)", "job.finish(); os._exit(0)":
            with self.subTest(body), tempfile.TemporaryDirectory() as folder, jobapi.serve() as api:
                script = Path(folder, "within.py")
                script.write_text(WITHIN % body)
                done = jobapi.run_script(script, jobapi.variables(folder, SWITCHYARD_JOB_API=api.url, HEARTBEAT_FREQ=1))
                self.assertEqual(0, done.returncode, done.stderr)
                self.assertEqual([{"outcome": "finished", "epochs_done": 3, "message": ""}], api.bodies("end"))
                self.assertEqual([1, 2, 3], [epoch["epochs_done"] for epoch in api.bodies("epochs")])
                self.assertEqual(12, sum(beat["steps"] for beat in api.bodies("steps")))


if __name__ == "__main__":
    unittest.main()
