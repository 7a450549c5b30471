"""Leaving and going on in the middle of an epoch."""

import threading
import unittest

import switchyard
from switchyard import _stops
from tests import jobapi
from tests.test_job import running


def told(job):
    """An event: the library has heard that a stop is near."""
    heard, hear = threading.Event(), job._link._hear

    def listen(answer):
        said = hear(answer)
        if job._link.stop_near:
            heard.set()
        return said

    job._link._hear = listen
    return heard


def train(job, trained, batches, save_every=None):
    """The loop of the README; trained gets each sample that a step was done with."""
    with job:
        job.load("state.pkl")
        for _ in job.epochs():
            for index, batch in enumerate(job.steps(batches(job))):
                trained.extend(batch)
                if job.should_save() or save_every and index % save_every == save_every - 1:
                    job.save(list(trained), "state.pkl")
            job.report(accuracy=0.5)
            job.save(list(trained), "state.pkl")


def listed(_job):
    return [[2 * i, 2 * i + 1] for i in range(20)]


def sampled(job):
    return job.sampler(40)


def sampled_lazily(job):
    yield from job.sampler(40)


def listed_lazily(job):
    yield from listed(job)


class Steps(unittest.TestCase):
    def test_a_stop_after_a_step_and_the_rest_of_the_epoch_later(self):
        for batches in listed, listed_lazily, sampled, sampled_lazily:
            with self.subTest(batches.__name__), running(
                HEARTBEAT_FREQ=4, EPOCHS_TO_BE_DONE=1, BATCH_SIZE=2, NUM_GPUS=1, TRAINING_SET_SIZE=40
            ) as api:
                trained = []
                job = switchyard.job()
                api.wish, api.control["stop"] = {"stop": True}, True
                heard = told(job)

                def waits(job, batches=batches, heard=heard):
                    for index, batch in enumerate(batches(job)):
                        self.assertTrue(index < 10 or heard.wait(jobapi.PATIENCE_SECONDS))
                        yield batch

                train(job, trained, waits)
                here = len(trained) // 2
                self.assertLess(0, here)
                self.assertLess(here, 20)
                kept = api.bodies("checkpoints")[-1]
                self.assertEqual((0, here, 20), (kept["epochs_done"], kept["epoch_step"], kept["epoch_steps"]))
                self.assertEqual("stopped", api.bodies("end")[-1]["outcome"])
                self.assertEqual([], api.bodies("epochs"))
                self.assertIn("&step=%d" % here, [r.path for r in api.requests if "control" in r.path][-1])

                api.wish, api.control["stop"] = {}, False
                train(switchyard.job(), trained, batches)
                self.assertEqual(list(range(40)), sorted(trained))
                ended = api.bodies("epochs")[-1]
                self.assertEqual((1, 20, 40), (ended["epochs_done"], ended["steps"], ended["samples"]))
                self.assertEqual("finished", api.bodies("end")[-1]["outcome"])
                beat = api.bodies("steps")[-1]
                self.assertEqual((20, 20, True), (beat["epoch_step"], beat["epoch_steps"], beat["stops_at_steps"]))

    def test_an_epoch_that_an_earlier_attempt_trained_has_no_time(self):
        """It left after the last step, but before it could say that the epoch is done."""
        with running(EPOCHS_TO_BE_DONE=1, BATCH_SIZE=2, NUM_GPUS=1, TRAINING_SET_SIZE=40) as api:
            trained = []
            with self.assertRaises(KeyboardInterrupt):
                train(switchyard.job(), trained, lambda job: _fails(listed(job)), save_every=20)
            train(switchyard.job(), trained, listed)
            ended = api.bodies("epochs")[-1]
        self.assertEqual(40, len(trained))
        self.assertEqual({"epochs_done": 1, "rank": 0, "metrics": {"accuracy": 0.5}}, ended)

    def test_an_epoch_without_a_length_does_not_get_one_from_its_steps(self):
        for known, want in (("64", 4), ("24", None), ("", None)):
            with self.subTest(known=known), running(HEARTBEAT_FREQ=1, TRAINING_SET_SIZE=known) as api:
                with switchyard.job() as job:
                    for _ in job.steps(iter(range(3))):
                        job.save("state", "state.pkl")
                self.assertTrue(job._link._sender.flush())
                for body in api.bodies("checkpoints")[-1], api.bodies("steps")[-1]:
                    self.assertEqual((3, want), (body["epoch_step"], body.get("epoch_steps")), body)

    def test_a_killed_attempt_goes_on_from_its_last_save(self):
        with running(EPOCHS_TO_BE_DONE=1, BATCH_SIZE=2, NUM_GPUS=1, TRAINING_SET_SIZE=40):
            trained = []

            def killed(_job):
                for batch in listed(_job)[:13]:
                    yield batch
                raise KeyboardInterrupt

            with self.assertRaises(KeyboardInterrupt):
                train(switchyard.job(), trained, killed, save_every=5)
            self.assertEqual(list(range(26)), trained)
            again = []
            train(switchyard.job(), again, listed)
            self.assertEqual(list(range(20, 40)), again)

    def test_code_that_does_not_skip_begins_its_epoch_again(self):
        with running(EPOCHS_TO_BE_DONE=1, BATCH_SIZE=2, NUM_GPUS=1, TRAINING_SET_SIZE=40) as api:
            trained = []
            with self.assertRaises(KeyboardInterrupt):
                train(switchyard.job(), trained, lambda job: _fails(listed(job)[:7]), save_every=5)
            with switchyard.job() as job:
                job.load("state.pkl")
                for _ in job.epochs():
                    for _ in range(20):
                        job.step()
            self.assertEqual(20, api.bodies("epochs")[-1]["steps"])

    def test_a_training_ends_after_its_last_step(self):
        """Also in the middle of an epoch, and in a loop of one's own; a restart does not begin another epoch."""
        with running(
            EPOCHS_TO_BE_DONE="", SWITCHYARD_MAX_STEPS=25, BATCH_SIZE=2, NUM_GPUS=1, TRAINING_SET_SIZE=40
        ) as api:
            trained = []
            train(switchyard.job(), trained, listed)
            self.assertEqual(2 * 25, len(trained))
            self.assertEqual([1, 2], [e["epochs_done"] for e in api.bodies("epochs")])
            self.assertEqual([20, 5], [e["steps"] for e in api.bodies("epochs")])
            self.assertEqual("finished", api.bodies("end")[-1]["outcome"])
            with switchyard.job() as job:
                steps = 0
                while not job.should_stop():
                    job.step()
                    steps += 1
            self.assertEqual(25, steps)
            self.assertEqual("finished", api.bodies("end")[-1]["outcome"])

    def test_code_with_its_own_loop_asks_where_to_go_on(self):
        with running(HEARTBEAT_FREQ=1, EPOCHS_TO_BE_DONE=1, BATCH_SIZE=2, NUM_GPUS=1, TRAINING_SET_SIZE=40) as api:
            done = []
            job = switchyard.job()
            api.wish, api.control["stop"] = {"stop": True}, True
            heard = told(job)
            for _ in range(2):
                with job:
                    job.load("state.pkl")
                    for _ in job.epochs():
                        for step in range(job.epoch_step(), 20):
                            done.append(step)
                            job.step()
                            self.assertTrue(step < 10 or heard.wait(jobapi.PATIENCE_SECONDS))
                            if job.should_stop():
                                job.save(None, "state.pkl")
                                break
                api.wish, api.control["stop"] = {}, False
                job = switchyard.job()
            self.assertEqual(list(range(20)), done)

    def test_it_saves_now_and_then(self):
        with running(EPOCHS_TO_BE_DONE=1), jobapi.mock.patch.object(_stops, "SECONDS_BETWEEN_SAVES", 0.0):
            job = switchyard.job()
            job.start_epoch()
            job.step()
            self.assertTrue(job.should_save())
            self.assertFalse(job.should_stop())

    def test_several_processes_that_cannot_agree_leave_at_the_end_of_an_epoch(self):
        with running(EPOCHS_TO_BE_DONE=1, WORLD_SIZE=2, RANK=0) as api:
            job = switchyard.job()
            api.wish = {"stop": True}
            api.control["stop"] = True
            with job:
                for _ in job.epochs():
                    for _ in job.steps(range(20)):
                        self.assertFalse(job.should_stop())
            self.assertEqual("finished", api.bodies("end")[-1]["outcome"])
            self.assertNotIn("stops_at_steps", api.bodies("steps")[-1])


def _fails(batches):
    yield from batches
    raise KeyboardInterrupt


if __name__ == "__main__":
    unittest.main()
