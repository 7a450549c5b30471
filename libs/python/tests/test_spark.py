"""A BigDL program goes on from its checkpoints, and its executors carry the job's mark."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from switchyard import _spark_program, spark
from tests import jobapi

STANDIN = jobapi.LIBRARY.parent.parent / "test" / "spark"


class Line(unittest.TestCase):
    def test_the_program_is_run_by_the_runner(self):
        line = ["spark-submit", "--master", "local", "--conf=a=b", "--verbose", "--conf", "c=d", "net.py", "--rate", "1"]
        made = spark.command(line)
        self.assertEqual(line[:7] + line[7:], [word for word in made if not word.endswith("_spark_program.py")])
        self.assertTrue(made[7].endswith("_spark_program.py"))

    def test_other_programs_are_refused(self):
        for line in ["spark-submit"], ["spark-submit", "--master"], ["spark-submit", "--class", "Main", "net.jar"]:
            with self.assertRaises(SystemExit):
                spark.command(line)


class States(unittest.TestCase):
    def test_the_newest_whole_state_comes_first(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in "1/model.10", "1/optimMethod.10", "2/model.20", "2/optimMethod-wide.20", "2/optimMethod-deep.20", "3/model.30", "3/notes.txt":
                path = Path(folder, name)
                path.parent.mkdir(exist_ok=True)
                path.write_text("")
            found = list(_spark_program.states(Path(folder)))
            self.assertEqual(["model.20", "model.10"], [state.model.name for state in found])
            self.assertEqual([{"wide", "deep"}, {""}], [set(state.methods) for state in found])


class Program(unittest.TestCase):
    def test_a_program_that_cannot_go_on_goes_on(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "conf").write_text("standin.scale 0.0001")
            first = self.run_program(folder, "2")
            self.assertEqual((1, 0), (first.count("[Epoch 2 ") // 3, first.count("it goes on from")))
            damaged = max(Path(folder, "job", "bigdl").glob("*/model.*"), key=lambda path: int(path.suffix[1:]))
            damaged.write_text("{")
            second = self.run_program(folder, "3")
            self.assertIn("cannot be loaded", second)
            self.assertIn("it goes on from", second)
            self.assertEqual([False, True, True], ["[Epoch %d " % epoch in second for epoch in (1, 2, 3)])

    def run_program(self, folder, epochs):
        line = [sys.executable, "-m", "switchyard.spark", str(STANDIN / "spark-submit"), "--master", "local[2]", "--properties-file", folder + "/conf"]
        environ = dict(os.environ, SWITCHYARD_SNAPSHOTS_DIR=folder, JOB_UUID="job", SWITCHYARD_JOB_ATTEMPT="a/1/f", PYTHONPATH=str(jobapi.LIBRARY))
        ran = subprocess.run(
            line + [str(STANDIN / "lenet5.py"), "--endTriggerNum", epochs], env=environ, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True,
        )  # fmt: skip
        self.assertEqual(0, ran.returncode, ran.stdout)
        return ran.stdout

    def test_executors_carry_the_mark(self):
        class Module:
            class SparkContext:
                def __init__(self, master=None, environment=None):
                    self.environment = environment

        os.environ["SWITCHYARD_JOB_ATTEMPT"] = "a/1/f"
        self.addCleanup(os.environ.pop, "SWITCHYARD_JOB_ATTEMPT")
        _spark_program.mark_executors(Module)
        self.assertEqual({"SWITCHYARD_JOB_ATTEMPT": "a/1/f", "B": "c"}, Module.SparkContext("m", environment={"B": "c"}).environment)
        self.assertEqual('{"SWITCHYARD_JOB_ATTEMPT": "a/1/f"}', json.dumps(Module.SparkContext().environment))


if __name__ == "__main__":
    unittest.main()
