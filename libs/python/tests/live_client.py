"""The client against a real installation: test/system starts it and runs this file. SWITCHYARD_CONTEXT names it, and
WEB is the command that starts its service web, which these tests start and kill."""

import asyncio
import contextlib
import json
import os
import subprocess
import tempfile
import threading
import unittest
from pathlib import Path

from switchyard.client import (
    AsyncStudy, AsyncYard, Away, Error, NotFound, Over, Refused, Rejected, Spec, Study, Unfinished, Yard, choice, integer, log_uniform,
    uniform,
)  # fmt: skip

HEADER = "[switchyard: attempt 1 of"


class Web:
    """The service web as a process of its own."""

    def __init__(self):
        self.process = None

    def start(self):
        self.process = subprocess.Popen(json.loads(os.environ["WEB"]), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self):
        self.process.kill()
        self.process.wait()


class Live(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.web = Web()
        cls.web.start()
        cls.addClassCleanup(lambda: cls.web.kill())
        context = json.loads(Path(os.environ["SWITCHYARD_CONTEXT"]).read_text())
        cls.socket = os.path.join(context["data_dir"], "web.sock")
        for _ in range(600):
            with contextlib.suppress(Away):
                Yard().about()
                return
            threading.Event().wait(0.1)
        raise AssertionError("the service web does not come up")

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.yard = Yard(patience=60)
        self.addCleanup(self.cancel_all)

    def cancel_all(self):
        self.yard.cancel(*self.yard.jobs(state=["submitted", "queued", "starting", "running", "held", "paused", "preempting"]))

    def sh(self, text, **keys):
        return self.yard.submit(["sh", "-c", text], **keys)

    def output(self, job, **how):
        return [line for line in self.yard.logs(job, **how) if not line.startswith(HEADER)]


class Jobs(Live):
    def test_a_script_from_its_submission_to_its_results(self):
        script = self.folder / "train.py"
        script.write_text("import os, pathlib\nprint('hello', os.environ['WHO'], flush=True)\npathlib.Path('out.bin').write_bytes(b'x' * 2000000)\nprint('bye', end='')\n")
        job = self.yard.submit(["python3", str(script)], env={"WHO": "you"}, labels={"phase": "a"})
        self.assertEqual("train", job["spec"]["name"])
        self.assertIn("PATH", job["spec"]["env"])
        self.assertEqual(["hello you", "bye"], self.output(job, follow=True))
        [ended] = self.yard.wait(job)
        self.assertEqual(("succeeded", 0), (ended["state"], ended["exit_code"]))
        self.assertEqual(["bye"], self.output(job["id"], tail=1))
        results = self.yard.results(job)
        self.assertIn("work/out.bin", [file["path"] for file in results.files["files"]])
        self.yard.fetch(job, "work/out.bin", self.folder / "got")
        self.assertEqual(b"x" * 2000000, (self.folder / "got").read_bytes())
        with self.assertRaisesRegex(Refused, "no such file"):
            self.yard.fetch(job, "work/none", self.folder / "none")
        self.assertEqual({"train.py", "got"}, {path.name for path in self.folder.iterdir()})
        self.assertEqual([job["id"]], [found["id"] for found in self.yard.jobs(label={"phase": "a"}, state=["succeeded"])])
        self.assertEqual(job["id"], self.yard.describe("train")["job"]["id"])
        self.assertEqual(job["id"], self.yard.job(job["id"])["id"])
        self.assertIn("succeeded", self.yard.explain(job)["sections"][0]["parts"][0]["words"])

    def test_the_same_submission_counts_once_and_another_is_a_conflict(self):
        spec = Spec(name="once", command=["true"])
        self.assertEqual("once-1", self.yard.submit(spec, id="once-1")["id"])
        self.assertEqual("once-1", self.yard.submit(spec, id="once-1")["id"])
        with self.assertRaisesRegex(Refused, "another submission has this id.*choose another id"):
            self.yard.submit(Spec(name="once", command=["false"]), id="once-1")

    def test_a_refused_job_says_why_and_what_to_do(self):
        with self.assertRaisesRegex(Refused, '(?s)priority: want a whole number, found "high".*colour: no such field') as refused:
            self.sh("true", priority="high", colour="red")
        self.assertEqual(422, refused.exception.status)
        with self.assertRaisesRegex(Rejected, "TooFewDevices.*ask for fewer"):
            self.sh("true", min_devices=64, strategy="all_reduce")
        with self.assertRaisesRegex(NotFound, 'no job "none-such".*switchyard ps'):
            self.yard.job("none-such")

    def test_jobs_are_held_changed_paused_and_cancelled(self):
        job = self.sh("sleep 600")
        self.assertEqual(80, self.yard.set(job, priority=80)["spec"]["priority"])
        self.assertNotIn("deadline", self.yard.set(job, deadline=None)["spec"])
        with self.assertRaisesRegex(Error, "stays as it is:\n  OutOfRange priority: want at most 100"):
            self.yard.set(job, priority=800)
        with self.assertRaisesRegex(Unfinished, "1 of 1 jobs had not ended after 0.2 s") as unfinished:
            self.yard.wait(job, timeout=0.2)
        self.assertEqual([job["id"]], [late["id"] for late in unfinished.exception.jobs])
        self.assertEqual("paused", self.yard.pause(job, force=True, reason="lunch")["wanted"]["state"])
        self.assertEqual("run", self.yard.resume(job)["wanted"]["state"])
        self.assertEqual("held", self.yard.hold(job)["wanted"]["state"])
        [cancelled] = self.yard.cancel(job, reason="enough")
        self.assertEqual("cancelled", cancelled["state"])
        self.assertEqual("cancelled", self.yard.cancel(job)[0]["state"])
        with self.assertRaisesRegex(Error, "has ended: cancelled"):
            self.yard.pause(job)

    def test_a_killed_service_ends_neither_waits_nor_logs_nor_changes(self):
        gate = Path("gate").resolve()
        job = self.sh("echo one; while [ ! -e %s ]; do sleep 0.05; done; echo two" % gate)
        lines, ends = [], []
        first = threading.Event()

        def read():
            for line in self.yard.logs(job, follow=True):
                lines.append(line)
                first.set()

        reader = threading.Thread(target=read)
        waiter = threading.Thread(target=lambda: ends.extend(self.yard.wait(job)))
        reader.start()
        self.assertTrue(first.wait(60))
        waiter.start()
        changes = self.yard.changes()
        mark = self.sh("true", id="before-the-kill")
        while mark["id"] not in [changed["id"] for changed in next(changes).changes.get("jobs", [])]:
            pass
        self.web.kill()
        with self.assertRaisesRegex(Away, "service web"):
            Yard(self.socket, patience=0).about()
        gate.touch()
        self.web.start()
        reader.join(120)
        waiter.join(120)
        self.assertEqual(["one", "two"], [line for line in lines if not line.startswith(HEADER)])
        self.assertEqual(["succeeded"], [end["state"] for end in ends])
        # Another process of the service does not know the position: it says that everything is to be loaded again, after
        # what had already arrived of the job.
        self.assertTrue(any(next(changes).reload for _ in range(20)))


class Tasks(Live):
    def test_twenty_jobs_at_once(self):
        async def main():
            yard = AsyncYard(patience=60)
            jobs = await asyncio.gather(*(yard.submit(["echo", "job %d" % i]) for i in range(20)))
            before = threading.active_count()
            waits = asyncio.gather(*(yard.wait(job) for job in jobs))
            outputs = await asyncio.gather(*(read(yard, job) for job in jobs))
            self.assertEqual(before, threading.active_count())
            self.assertEqual([["job %d" % i] for i in range(20)], outputs)
            self.assertEqual({"succeeded"}, {ended["state"] for [ended] in await waits})

        async def read(yard, job):
            return [line async for line in yard.logs(job, follow=True) if not line.startswith(HEADER)]

        asyncio.run(main())

    def test_changes_and_files_and_refusals(self):
        async def main():
            yard = AsyncYard(patience=60)
            changes = yard.changes()
            seen = asyncio.ensure_future(changes.__anext__())
            job = await yard.submit(["sh", "-c", "printf hello > out.txt"])
            change = await seen
            self.assertTrue(change.position)
            await changes.aclose()
            await yard.wait(job)
            pieces = [piece async for piece in yard.fetch(job, "work/out.txt")]
            self.assertEqual(b"hello", b"".join(pieces))
            with self.assertRaisesRegex(Unfinished, "had not ended"):
                held = await yard.submit(["sleep", "600"])
                await yard.wait(held, timeout=0.2)
            self.assertEqual("cancelled", (await yard.cancel(held))[0]["state"])
            with self.assertRaises(NotFound):
                await yard.job("none-such")

        asyncio.run(main())


class Sessions(Live):
    def test_a_link_logs_in_once(self):
        shown = subprocess.run([os.environ["SWITCHYARD"], "open"], stdout=subprocess.PIPE, check=True, universal_newlines=True)
        yard = Yard(shown.stdout.strip())
        self.assertEqual("admin", yard.about()["person"]["role"])
        job = yard.submit(["true"])
        self.assertEqual("succeeded", yard.wait(job)[0]["state"])
        with self.assertRaisesRegex(Refused, "the link was used before.*switchyard open"):
            Yard(shown.stdout.strip()).about()


TRAINING = """
import os, sys, switchyard
x = float(os.environ["SWITCHYARD_PARAM_X"])
with switchyard.job(epochs=2) as job:
    for epoch in job.epochs():
        for step in job.steps(range(2)):
            pass
        job.report(loss=(x - 0.3) ** 2 + 1 - epoch, accuracy=float(sys.argv[1]))
    sys.exit(float(sys.argv[1]) > 0.9)
"""


class Studies(Live):
    def setUp(self):
        super().setUp()
        Path("train_x.py").write_text(TRAINING)

    def test_a_study_runs_jobs_finds_the_best_and_goes_on(self):
        space = {"x": uniform(0, 1), "y": choice(0.1, 0.5)}
        study = Study(self.yard, "one", space, seed=3)
        seen = []
        for trial in study.run(["python3", "train_x.py", "${y}"], trials=3, at_once=2):
            seen.append(trial)
            if len(seen) == 2:
                break  # as if the program had been killed: the third may run
        again = Study(Yard(patience=60), "one", space, seed=3)
        known = again.load()
        self.assertLessEqual(2, len(known))
        self.assertEqual({trial.number: trial.params for trial in study.trials}, {trial.number: trial.params for trial in known})
        self.web.kill()
        self.web.start()
        more = list(again.run(["python3", "train_x.py", "${y}"], trials=6, at_once=2))
        self.assertEqual(6, len(again.trials))
        self.assertEqual(6, len({json.dumps(trial.params) for trial in again.trials}))
        self.assertEqual({"one-%d" % number for number in range(6)}, {trial.job for trial in again.trials})
        self.assertLessEqual(4, len(more) + 1)
        for trial in again.trials:
            self.assertAlmostEqual((trial.params["x"] - 0.3) ** 2, trial.value)
        self.assertEqual(min(trial.value for trial in again.trials), again.best.value)
        self.assertEqual(6, len(self.yard.jobs(label={"study": "one"})))
        results = self.yard.results(again.best.job)
        self.assertEqual([1, 2], [epoch["epochs_done"] for epoch in results.epochs])
        self.assertEqual(again.best.params["y"], results.epochs[0]["metrics"]["accuracy"])
        self.assertEqual("one", results.job["spec"]["family"])

    def test_two_studies_at_once(self):
        async def main():
            yard = AsyncYard(patience=60)
            studies = [
                AsyncStudy(yard, "low", {"x": uniform(0, 1), "y": choice(0.25, 0.95)}, algorithm="grid"),
                AsyncStudy(yard, "high", {"x": log_uniform(0.1, 1), "y": choice(0.5, 0.75)}, objective="accuracy", algorithm="random"),
            ]
            await asyncio.gather(*(self.play(study) for study in studies))
            low, high = studies
            # What exits with 1 has failed, and is no result.
            self.assertEqual({0.95}, {trial.params["y"] for trial in low.trials if trial.state == "failed"})
            self.assertEqual(low.trials[0].params["y"], 0.25)
            self.assertEqual({0.5, 0.75}, {trial.value for trial in high.trials})
            self.assertEqual(0.75, high.best.value)

        asyncio.run(main())

    async def play(self, study):
        async for trial in study.run(["python3", "train_x.py", "${y}"], trials=5, at_once=1, retries=0):
            self.assertIn(trial.state, ("ended", "failed"))
        self.assertEqual(5, len(study.trials))

    def test_a_study_is_asked_and_told_without_jobs(self):
        study = Study(self.yard, "told", {"x": uniform(-1, 1), "n": integer(1, 3)}, seed=1)
        for _ in range(12):
            trial = study.ask()
            self.assertIsInstance(trial.params["x"], float)
            self.assertIsInstance(trial.params["n"], int)
            if trial.number == 2:
                study.tell(trial, failed=True)
            else:
                study.tell(trial, (trial.params["x"] - 0.3) ** 2 + (trial.params["n"] - 2) ** 2)
        self.assertLess(study.best.value, 0.05)
        few = Study(self.yard, "few", {"a": choice("b", "c")}, algorithm="grid")
        self.assertEqual(["b", "c"], [few.ask().params["a"], few.ask().params["a"]])
        with self.assertRaisesRegex(Over, "all 2 points have been tried"):
            few.ask()

    def test_what_a_study_cannot_do_is_said(self):
        for why, arguments in {
            "want random, grid or gp.*switchyard tune run": dict(algorithm="asha"),
            "want minimise or maximise": dict(goal="up"),
        }.items():
            with self.assertRaisesRegex(Error, why):
                Study(self.yard, "no", {"x": uniform(0, 1)}, **arguments).ask()
        with self.assertRaisesRegex(Error, r"parameter x: want a range"):
            Study(self.yard, "no", {"x": uniform(1, 0)}).ask()
        with self.assertRaisesRegex(Error, "reported no loss at the end of an epoch: report it"):
            list(Study(self.yard, "silent", {"x": uniform(0, 1)}).run(["true"], trials=1))


if __name__ == "__main__":
    unittest.main()
