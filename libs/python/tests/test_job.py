"""The switchyard package against a real server: what is reported, and when a job leaves."""

import collections
import contextlib
import io
import os
import unittest
from pathlib import Path
from unittest import mock

import switchyard
from switchyard import _http
from switchyard._parts import parts_of
from tests import jobapi

BASE = "/attempt/t0k3n/v1/jobs/job-1/"


@contextlib.contextmanager
def running(**changes):
    """A server, and a job's environment that points to it."""
    with jobapi.serve() as api, jobapi.environment(SWITCHYARD_JOB_API=api.url, **changes):
        yield api


def train(job, batches=4):
    """The plain loop; returns the numbers of the epochs it ran."""
    ran = []
    with job:
        for epoch in job.epochs():
            for index, _ in enumerate(job.steps(range(batches))):
                job.report(loss=float(index))
            job.report(accuracy=0.5)
            job.save({"epoch": epoch}, "state.pkl")
            ran.append(epoch)
    return ran


class Reports(unittest.TestCase):
    def test_a_whole_run(self):
        with running(HEARTBEAT_FREQ=100) as api:
            self.assertEqual([0, 1, 2], train(switchyard.job()))
            state = Path(os.environ["SWITCHYARD_SNAPSHOTS_DIR"], "job-1", "state.pkl")
            self.assertEqual(state.stat().st_size, api.bodies("checkpoints")[0]["bytes"])
        epoch = ["POST job-1/checkpoints", "POST job-1/steps", "POST job-1/epochs", "GET job-1/control"]
        self.assertEqual(["GET job-1/control"] + 3 * epoch + ["POST job-1/end"], api.calls())
        self.assertTrue(all(request.path.startswith(BASE) for request in api.requests))

        first = api.bodies("steps")[1]
        self.assertGreaterEqual(first.pop("step_seconds"), 0)
        want = {
            "step": 8, "epoch": 1, "epoch_step": 4, "epoch_steps": 4, "steps": 4, "samples": 64, "rank": 0, "loss": 1.5,
        }
        self.assertEqual(want, first)
        ended = api.bodies("epochs")[1]
        self.assertGreaterEqual(ended.pop("epoch_seconds"), 0)
        want = {"epochs_done": 2, "steps": 4, "samples": 64, "rank": 0, "loss": 1.5, "metrics": {"accuracy": 0.5}}
        self.assertEqual(want, ended)
        kept = api.bodies("checkpoints")
        self.assertEqual([1, 2, 3], [body["epochs_done"] for body in kept])
        self.assertEqual({str(state)}, {body["path"] for body in kept})
        self.assertEqual([{"outcome": "finished", "epochs_done": 3, "message": ""}], api.bodies("end"))

    def test_heartbeats_hold_every_step_once(self):
        with running(HEARTBEAT_FREQ=3) as api:
            train(switchyard.job(), batches=100)
        beats = api.bodies("steps")
        self.assertEqual(300, sum(beat["steps"] for beat in beats))
        self.assertEqual(300, beats[-1]["step"])
        self.assertEqual([0, 1, 2], sorted({beat["epoch"] for beat in beats}))

    def test_plain_calls(self):
        with running(HEARTBEAT_FREQ=2) as api:
            job = switchyard.job()
            while job.epochs_done < job.epochs_total and not job.should_stop():
                job.step(loss=2.0, samples=5, grad_sqr=0.25, grad_var=8.0, entropy=1.0)
                job.step(loss=4.0, samples=6, grad_sqr=0.75, grad_var=4.0)
                job.end_epoch(loss=1.0, accuracy=0.9)
            job.finish()
            job.finish()
        beat = api.bodies("steps")[0]
        names = ("steps", "samples", "loss", "grad_sqr", "grad_var")
        self.assertEqual([2, 11, 3.0, 0.5, 6.0], [beat[name] for name in names])
        self.assertEqual({"entropy": 1.0}, beat["metrics"])
        ended = api.bodies("epochs")[2]
        self.assertEqual([3, 1.0, 0.5], [ended[k] for k in ("epochs_done", "loss", "grad_sqr")])
        self.assertEqual({"accuracy": 0.9, "entropy": 1.0}, ended["metrics"])
        self.assertEqual([{"outcome": "finished", "epochs_done": 3, "message": ""}], api.bodies("end"))

    def test_time_spent_waiting_is_told(self):
        with running(HEARTBEAT_FREQ=2) as api:
            job = switchyard.job()
            clock = [0.0]
            with mock.patch("time.monotonic", lambda: clock[0]):
                job.start_epoch()
                for seconds, waited in ((1.0, 0.25), (1.0, 0.75), (1.0, 0.0), (1.0, 0.0)):
                    clock[0] += seconds - waited
                    with job.waiting():
                        clock[0] += waited
                    job.step()
            job.end_epoch()
        first, second = api.bodies("steps")[:2]
        self.assertEqual((1.0, 0.5), (first["step_seconds"], first["wait_seconds"]))
        self.assertNotIn("wait_seconds", second)

    def test_no_nan_or_infinity_is_sent(self):
        bad = [float("nan"), float("inf"), -float("inf"), "text", None, 10**400]
        with running(HEARTBEAT_FREQ=1) as api, contextlib.redirect_stderr(io.StringIO()):
            with switchyard.job() as job:
                for value in bad:
                    job.step(loss=value, grad_sqr=value, odd=value)
                job.end_epoch(loss=float("nan"), accuracy=float("inf"), fine=2)
        first, ended = api.bodies("steps")[0], api.bodies("epochs")[0]
        self.assertFalse({"loss", "grad_sqr"} & (set(first) | set(ended)), (first, ended))
        self.assertEqual({"nonfinite_steps": 1.0, "nonfinite_grad_sqr": 1.0, "nonfinite_odd": 1.0}, first["metrics"])
        self.assertEqual(
            {
                "nonfinite_steps": 4.0, "nonfinite_grad_sqr": 4.0, "nonfinite_odd": 4.0,
                "nonfinite_loss": 1.0, "nonfinite_accuracy": 1.0, "fine": 2.0,
            },
            ended["metrics"],
        )  # fmt: skip

    def test_a_value_that_is_no_number_any_more_is_marked(self):
        """A search must not take the last number for that of a training that has diverged since."""
        nan, said = float("nan"), io.StringIO()
        with running(HEARTBEAT_FREQ=100) as api, contextlib.redirect_stderr(said):
            with switchyard.job() as job:
                for epoch in job.epochs():
                    for step in job.steps(range(4)):
                        job.report(loss=0.5, rate=nan if epoch else 2.0, odd=nan if step else 1.0)
                    job.report(val_loss=nan if epoch else 0.01)
        good = {"rate": 2.0, "odd": 1.0, "val_loss": 0.01}
        bad = {"nonfinite_rate": 4.0, "odd": 1.0, "nonfinite_val_loss": 1.0}
        self.assertEqual([good, bad, bad], [body["metrics"] for body in api.bodies("epochs")])
        self.assertEqual(1, said.getvalue().count("val_loss of epoch 2 is NaN or infinite"), said.getvalue())

    def test_an_epoch_in_which_a_step_diverged_has_no_mean_loss(self):
        nan, said = float("nan"), io.StringIO()
        with running(HEARTBEAT_FREQ=100, EPOCHS_TO_BE_DONE=5) as api, contextlib.redirect_stderr(said):
            with switchyard.job() as job:
                for losses, told in (
                    ([1.0] + 9 * [nan], {}), ([1.0, 3.0], {}), ([nan], {"loss": 5.0}), ([1.0], {"loss": nan}), ([3.0], {}),
                ):  # fmt: skip
                    for loss in losses:
                        job.step(loss=loss)
                    job.end_epoch(**told)
        want = [(None, 9.0), (2.0, None), (5.0, 1.0), (None, None), (3.0, None)]
        ended = [(body.get("loss"), body.get("metrics", {}).get("nonfinite_steps")) for body in api.bodies("epochs")]
        self.assertEqual(want, ended)
        self.assertEqual(1, said.getvalue().count("the loss of a step in epoch 1 is NaN or infinite"), said.getvalue())
        self.assertEqual(1, said.getvalue().count("loss of epoch 4 is NaN or infinite"), said.getvalue())
        self.assertEqual(2, said.getvalue().count("is NaN or infinite"), said.getvalue())

    def test_tensors_are_read_once_a_heartbeat(self):
        class Tensor:
            reads = 0

            def __init__(self, value):
                self.value = value
                self.shape = (7, 3)

            def detach(self):
                return self

            def __float__(self):
                Tensor.reads += 1
                return self.value

        with running(HEARTBEAT_FREQ=100) as api:
            with switchyard.job() as job:
                for batch in job.steps([(Tensor(1.0), "labels"), {"x": Tensor(2.0)}, Tensor(3.0)]):
                    job.report(loss=Tensor(5.0))
                self.assertEqual(0, Tensor.reads)
                job.end_epoch()
        self.assertEqual((21, 5.0), tuple(api.bodies("epochs")[0][k] for k in ("samples", "loss")))
        self.assertEqual(2, Tensor.reads)

    def test_a_failure_is_told_with_its_message_and_goes_on(self):
        with running() as api:
            with self.assertRaisesRegex(RuntimeError, "out of memory"):
                with switchyard.job() as job:
                    for _ in job.epochs():
                        raise RuntimeError("out of memory")
        want = [{"outcome": "failed", "epochs_done": 0, "message": "RuntimeError: out of memory"}]
        self.assertEqual(want, api.bodies("end"))
        self.assertEqual([], api.bodies("epochs"))

    def test_leaving_early_by_break_counts_a_trained_epoch(self):
        for trained, done in ((True, 1), (False, 0)):
            with self.subTest(trained=trained), running() as api:
                with switchyard.job() as job:
                    for _ in job.epochs():
                        for _ in job.steps([1, 2]):
                            if not trained:
                                break
                        break
                self.assertEqual(done, api.bodies("end")[0]["epochs_done"])
                self.assertEqual("finished", api.bodies("end")[0]["outcome"])


class Stopping(unittest.TestCase):
    def test_leaves_after_the_first_finished_epoch(self):
        with running() as api:
            api.control = dict(api.control, stop=True)
            self.assertEqual([0], train(switchyard.job()))
        self.assertEqual({"outcome": "stopped", "epochs_done": 1, "message": ""}, api.bodies("end")[0])

    def test_the_last_epoch_just_finishes(self):
        with running(EPOCHS_DONE=1) as api:
            api.control = dict(api.control, stop=True)
            self.assertEqual([1, 2], train(switchyard.job()))
        self.assertEqual("finished", api.bodies("end")[0]["outcome"])

    def test_a_stop_can_be_taken_back(self):
        with running(EPOCHS_TO_BE_DONE=5) as api:
            job = switchyard.job()
            api.control = dict(api.control, stop=True)
            job.end_epoch()
            self.assertTrue(job.should_stop())
            api.control = dict(api.control, stop=False)
            job.end_epoch()
            self.assertFalse(job.should_stop())

    def test_the_question_names_epoch_and_rank(self):
        with running(RANK=3, LOCAL_WORLD_SIZE=4) as api:
            switchyard.job().end_epoch()
        asked = [request.path for request in api.requests if request.method == "GET"]
        self.assertEqual([BASE + "control?epochs_done=%d&rank=3" % done for done in (0, 1)], asked)


class Tuning(unittest.TestCase):
    def test_micro_batch_and_accumulation_follow_the_scheduler(self):
        with running(EPOCHS_TO_BE_DONE=5) as api:
            job = switchyard.job()
            self.assertEqual((None, None), (job.micro_batch(), job.accumulation()))
            for said, want in (
                ({"micro_batch": 4, "accumulation": 2}, (4, 2)),
                ({"micro_batch": None, "accumulation": None}, (4, 2)),  # null asks nothing
                ({"micro_batch": 0, "accumulation": "2"}, (4, 2)),
                ({"micro_batch": True}, (4, 2)),
                ({"micro_batch": 2, "accumulation": 4}, (2, 4)),
            ):
                api.control = said
                job.end_epoch()
                self.assertEqual(want, (job.micro_batch(), job.accumulation()))

    def test_a_wish_comes_with_the_answer_to_a_heartbeat(self):
        with running(HEARTBEAT_FREQ=1, NUM_GPUS=1) as api:
            job = switchyard.job()
            api.wish = {"micro_batch": 3, "accumulation": 3, "generation": 7}
            sizes = []
            for _ in range(2):
                sizes.append([len(part) for part, _ in job.accumulate(Samples(8))])
                job.step(loss=1.0)
                self.assertTrue(job._link._sender.flush())
            job.finish()
            beats = api.bodies("steps")
        self.assertEqual([[8], [3, 3, 2]], sizes)
        told = [(beat["micro_batch"], beat["generation"]) for beat in beats]
        self.assertEqual([(8, 0), (3, 7)], told[:2])

    def test_a_job_that_does_not_follow_does_not_say_so(self):
        with running(HEARTBEAT_FREQ=1) as api:
            with switchyard.job() as job:
                job.step(loss=1.0)
                job.end_epoch()
        self.assertNotIn("micro_batch", api.bodies("steps")[0])

    def test_the_effective_batch_stays_as_it_is(self):
        with running() as api:
            api.control = {"micro_batch": 64, "accumulation": 1, "generation": 2}
            job = switchyard.job()
            self.assertEqual([(8, 1.0)], [(len(part), weight) for part, weight in job.accumulate(Samples(8))])
            self.assertEqual(8, job._batch.followed.micro_batch)
            job.finish()

    def test_parts_of_a_batch(self):
        pair = collections.namedtuple("pair", "x y")
        for batch, want in (
            (Samples(5), [Samples(2), Samples(2, 2), Samples(1, 4)]),
            ((Samples(3), "all"), [(Samples(2), "all"), (Samples(1, 2), "all")]),
            ([Samples(2), Samples(2)], [[Samples(2), Samples(2)]]),
            ({"x": Samples(3), "n": 4}, [{"x": Samples(2), "n": 4}, {"x": Samples(1, 2), "n": 4}]),
            (pair(Samples(3), Samples(3)), [pair(Samples(2), Samples(2)), pair(Samples(1, 2), Samples(1, 2))]),
            ("shapeless", ["shapeless"]),
        ):
            with self.subTest(batch=batch):
                parts = list(parts_of(batch, 2))
                self.assertEqual(want, [part for part, _ in parts])
                self.assertAlmostEqual(1.0, sum(weight for _, weight in parts))


class Samples:
    """What is asked of a tensor: count samples from first on, with a shape and slices."""

    def __init__(self, count, first=0):
        self.shape, self.first = (count, 9), first

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, cut):
        begin, end, _ = cut.indices(len(self))
        return Samples(end - begin, self.first + begin)

    def __eq__(self, other):
        return (self.shape, self.first) == (other.shape, other.first)

    def __repr__(self):
        return "Samples(%d, %d)" % (len(self), self.first)


class Resuming(unittest.TestCase):
    def test_goes_on_where_the_checkpoint_was_taken_whatever_was_reported(self):
        with running() as api:
            snapshots = os.environ["SWITCHYARD_SNAPSHOTS_DIR"]
            api.control = dict(api.control, stop=True)
            train(switchyard.job())
            api.control = dict(api.control, stop=False)
            for reported in (0, 1, 2):
                changes = {"EPOCHS_DONE": reported, "JOB_RESTARTED": "TRUE", "SWITCHYARD_JOB_API": api.url}
                table = jobapi.variables(snapshots, **changes)
                with self.subTest(reported=reported), mock.patch.dict(os.environ, table):
                    job = switchyard.job()
                    self.assertTrue(job.restarted)
                    self.assertEqual({"epoch": 0}, job.load("state.pkl"))
                    self.assertEqual(1, job.epochs_done)
                    job.step()
                    self.assertEqual(5, job._steps_done)

    def test_without_a_checkpoint_starts_over_and_says_so(self):
        said = io.StringIO()
        with running(EPOCHS_DONE=2, JOB_RESTARTED="TRUE"), contextlib.redirect_stderr(said):
            job = switchyard.job()
            self.assertEqual("new", job.load("state.pkl", default="new"))
            self.assertEqual(0, job.epochs_done)
        self.assertIn("starting from the first epoch", said.getvalue())

    def test_without_load_the_scheduler_is_believed_and_a_loss_is_named(self):
        restarted = {"EPOCHS_DONE": 2, "JOB_RESTARTED": "TRUE", "SWITCHYARD_ATTEMPT": 2}
        for what, saved, changes, want, warnings in (
            ("a restart without a checkpoint", None, {}, [2], 1),
            ("what a kill in the first save left", ".7-m.pt m.pt.progress.json", {}, [2], 1),
            ("a checkpoint of its own kind", "m.pt", {}, [2], 0),
            ("a job that continues another one", None, {"SWITCHYARD_ATTEMPT": 1}, [2], 0),
            ("a job that was not restarted", None, {"SWITCHYARD_ATTEMPT": 1, "JOB_RESTARTED": "FALSE"}, [2], 0),
            ("a job of which no epoch was done", None, {"EPOCHS_DONE": 0}, [0, 1, 2], 0),
        ):
            said = io.StringIO()
            with self.subTest(what), running(**dict(restarted, **changes)) as api, contextlib.redirect_stderr(said):
                folder = Path(os.environ["SWITCHYARD_SNAPSHOTS_DIR"], "job-1")
                folder.mkdir()
                for name in (saved or "").split():
                    (folder / name).write_text("state")
                self.assertEqual(want, train(switchyard.job()))
            self.assertEqual(warnings, said.getvalue().count("they are lost"), said.getvalue())
            self.assertEqual([epoch + 1 for epoch in want], [body["epochs_done"] for body in api.bodies("epochs")])
            self.assertEqual(want[0], api.bodies("steps")[0]["epoch"])

    def test_a_job_that_keeps_its_state_elsewhere_loads_it_by_its_path(self):
        with running(EPOCHS_DONE=2, JOB_RESTARTED="TRUE", SWITCHYARD_ATTEMPT=2):
            elsewhere = Path(os.environ["SWITCHYARD_SNAPSHOTS_DIR"], "elsewhere.txt")
            elsewhere.write_text("state")
            job = switchyard.job()
            self.assertEqual("state", job.load(str(elsewhere), reader=lambda path: Path(path).read_text()))
            self.assertEqual([2], train(job))

    def test_a_restarted_job_that_saves_what_it_never_loaded_is_warned_once(self):
        for load, warnings in ((False, 1), (True, 0)):
            said = io.StringIO()
            with self.subTest(load=load), running(), contextlib.redirect_stderr(said):
                switchyard.job().save("trained", "model", epochs_done=1)
                with mock.patch.dict(os.environ, {"EPOCHS_DONE": "1", "JOB_RESTARTED": "TRUE"}):
                    job = switchyard.job()
                    if load:
                        job.load("model")
                    job.save("new", "model", epochs_done=2)
                    job.save("new", "model", epochs_done=3)
            self.assertEqual(warnings, said.getvalue().count("has not called job.load"), said.getvalue())

    def test_of_several_checkpoints_the_oldest_counts(self):
        with running():
            job = switchyard.job()
            job.save(1, "model", epochs_done=2)
            job.save(2, "optimizer", epochs_done=1)
            again = switchyard.job()
            self.assertEqual((1, 2, None), (again.load("model"), again.load("optimizer"), again.load("extra")))
            self.assertEqual(1, again.epochs_done)

    def test_loading_in_the_middle_of_training_moves_no_counter(self):
        with running():
            job = switchyard.job()
            job.save("best", "best", epochs_done=0)
            job.end_epoch()
            job.load("best")
            job.load("absent")
            self.assertEqual(1, job.epochs_done)

    def test_only_the_first_rank_writes(self):
        with running(RANK=1, LOCAL_WORLD_SIZE=2) as api:
            job = switchyard.job()
            self.assertFalse(job.save(1, "state").exists())
            self.assertTrue(job.save(1, "state.1", all_ranks=True).exists())
            job.finish()
        self.assertEqual(1, len(api.bodies("checkpoints")))


class OutsideOfTheScheduler(unittest.TestCase):
    def test_runs_silently_with_local_checkpoints(self):
        with jobapi.environment() as folder, mock.patch.dict(os.environ, {}, clear=True):
            before = os.getcwd()
            os.chdir(folder)
            self.addCleanup(os.chdir, before)
            with mock.patch.object(_http.Client, "request", side_effect=AssertionError("a request")):
                self.assertEqual([0, 1], train(switchyard.job(epochs=2)))
            self.assertEqual(["state.pkl", "state.pkl.progress.json"], sorted(os.listdir("checkpoints")))
            job = switchyard.job()
            self.assertEqual(Path("checkpoints"), job.checkpoint_dir)
            self.assertEqual({"epoch": 1}, job.load("state.pkl"))
            self.assertEqual([2], list(job.epochs(3)))
            os.chdir(before)

    def test_epochs_must_come_from_somewhere(self):
        with mock.patch.dict(os.environ, {}, clear=True):
            with self.assertRaisesRegex(ValueError, "how many epochs"):
                list(switchyard.job().epochs())


class Environment(unittest.TestCase):
    def test_ranks_and_sizes(self):
        cases = [
            ({}, 0, 16, 4),
            ({"NODE_RANK": 1, "NUM_NODES": 2}, 1, 16, 2),
            ({"NODE_RANK": 1, "NUM_NODES": 2, "RANK": 3, "LOCAL_WORLD_SIZE": 2}, 3, 8, 2),
            ({"NODE_RANK": 1, "NUM_NODES": 2, "LOCAL_RANK": 1}, 3, 8, 2),
            ({"OMPI_COMM_WORLD_RANK": 1, "OMPI_COMM_WORLD_SIZE": 2}, 1, 8, 4),
            ({"PMI_RANK": 1, "PMI_SIZE": 2}, 1, 8, 4),
            ({"HOROVOD_RANK": 1, "HOROVOD_SIZE": 2}, 1, 8, 4),
            ({"PMI_RANK": 0, "PMI_SIZE": 1}, 0, 16, 4),
            ({"LOCAL_RANK": 1, "RANK": 1, "LOCAL_WORLD_SIZE": 2, "OMPI_COMM_WORLD_RANK": 0, "OMPI_COMM_WORLD_SIZE": 2}, 1, 8, 4),
            ({"NUM_GPUS": 0}, 0, 8, 8),
            ({"BATCH_SIZE": None}, 0, 0, None),
        ]
        for changes, rank, samples, steps in cases:
            with self.subTest(changes=changes), jobapi.environment(**changes):
                job = switchyard.job()
                self.assertEqual((rank, samples, steps), (job.rank, job.samples_per_step, job.steps_per_epoch))

    def test_a_variable_that_is_no_number_is_named(self):
        with jobapi.environment(NUM_GPUS="two"), self.assertRaisesRegex(ValueError, "NUM_GPUS='two'"):
            switchyard.job()

    def test_a_bad_address_does_not_stop_training(self):
        said = io.StringIO()
        with jobapi.environment(SWITCHYARD_JOB_API="ftp://x"), contextlib.redirect_stderr(said):
            self.assertEqual([0, 1, 2], train(switchyard.job()))
        self.assertIn("ftp://x", said.getvalue())


if __name__ == "__main__":
    unittest.main()
