"""The adapters, driven in the order in which the frameworks call their hooks."""

import types
import unittest
from pathlib import Path

import switchyard
from tests.test_job import running

KERAS = types.SimpleNamespace(callbacks=types.SimpleNamespace(Callback=type("Callback", (), {"model": None})))
TRANSFORMERS = types.SimpleNamespace(TrainerCallback=type("TrainerCallback", (), {}))
LIGHTNING = types.SimpleNamespace(Callback=type("Callback", (), {}))


class KerasModel:
    """Calls the hooks as Model.fit does."""

    stop_training = False

    def save_weights(self, path):
        Path(path).write_text("weights")

    def fit(self, callback, epochs, initial_epoch):
        callback.model = self
        callback.on_train_begin()
        for epoch in range(initial_epoch, epochs):
            callback.on_epoch_begin(epoch)
            for batch in range(2):
                callback.on_train_batch_end(batch, {"loss": 3.0, "accuracy": 0.25})
            callback.on_epoch_end(epoch, {"loss": 2.0, "accuracy": 0.5, "val_loss": float("nan")})
            if self.stop_training:
                break
        callback.on_train_end()


class Trainer:
    """Calls the hooks as a Lightning trainer does."""

    should_stop = False
    is_global_zero = True
    callback_metrics = {"loss": 2.0, "accuracy": 0.5, "val_loss": float("nan")}

    def save_checkpoint(self, path):
        Path(path).write_text("checkpoint")

    train_dataloader = types.SimpleNamespace(batch_size=8)
    accumulate_grad_batches = 1
    global_step = 0

    def fit(self, callback, epochs):
        callback.on_train_start(self, None)
        for _ in range(*epochs):
            callback.on_train_epoch_start(self, None)
            for index in range(2 * self.accumulate_grad_batches):
                self.global_step += (index + 1) % self.accumulate_grad_batches == 0
                callback.on_train_batch_end(self, None, {"loss": 3.0}, None, index)
            callback.on_train_epoch_end(self, None)
            if self.should_stop:
                break
        callback.on_train_end(self, None)


class HuggingFace:
    """Calls the hooks as the Trainer of Hugging Face does."""

    def __init__(self, batch, passes):
        self.args = types.SimpleNamespace(per_device_train_batch_size=batch, gradient_accumulation_steps=passes)
        self.control = types.SimpleNamespace(should_training_stop=False, should_save=False)

    def train(self, callback, epochs):
        call = lambda hook, **rest: getattr(callback, hook)(self.args, None, self.control, model=None, **rest)
        call("on_train_begin")
        for _ in range(*epochs):
            call("on_epoch_begin")
            for _ in range(2):
                call("on_step_end")
                call("on_log", logs={"loss": 2.0, "learning_rate": 0.1})
            call("on_epoch_end")
            if self.control.should_training_stop:
                break
        call("on_train_end")


class Batches(unittest.TestCase):
    """Frameworks that cannot change their batch say which one they run."""

    def ran(self, train, **environ):
        with running(NUM_GPUS=2, BATCH_SIZE=8, **environ) as api:
            train(switchyard.job())
        epoch = api.bodies("epochs")[0]
        return epoch["micro_batch"], epoch["accumulation"], epoch["global_batch"], epoch["samples"], epoch["steps"]

    def test_keras(self):
        for given, want in ((None, (8, 1, 16, 32, 2)), (12, (6, 1, 12, 24, 2))):
            fit = lambda job: KerasModel().fit(switchyard.keras_callback(job, KERAS, batch_size=given), 3, 2)
            self.assertEqual(want, self.ran(fit, SWITCHYARD_GLOBAL_BATCH=64, SWITCHYARD_BASE_BATCH=64))

    def test_lightning_accumulates_the_base_batch(self):
        for base, passes in (("64", 4), ("16", 1), ("", 1)):
            fit = lambda job: Trainer().fit(switchyard.lightning_callback(job, LIGHTNING), (2, 3))
            ran = self.ran(fit, SWITCHYARD_GLOBAL_BATCH=base, SWITCHYARD_BASE_BATCH=base)
            self.assertEqual((8, passes, 16 * passes, 32 * passes, 2), ran)

    def test_transformers(self):
        def train(job):
            self.assertEqual(4, job.accumulation())
            callback = switchyard.transformers_callback(job, TRANSFORMERS)
            HuggingFace(job.batch_size, job.accumulation()).train(callback, (2, 3))

        self.assertEqual((8, 4, 64, 128, 2), self.ran(train, SWITCHYARD_GLOBAL_BATCH=64, SWITCHYARD_ACCUMULATION=4))


class Callbacks(unittest.TestCase):
    def check(self, fit, name, text):
        with running() as api:
            job = switchyard.job()
            fit(job)
            self.assertEqual(text, (job.checkpoint_dir / name).read_text())
        self.assertEqual([1, 2, 3], [body["epochs_done"] for body in api.bodies("epochs")])
        self.assertEqual([1, 2, 3], [body["epochs_done"] for body in api.bodies("checkpoints")])
        ended = api.bodies("epochs")[0]
        metrics = {"accuracy": 0.5, "nonfinite_val_loss": 1.0}
        self.assertEqual((2, 2.0, metrics), (ended["steps"], ended["loss"], ended["metrics"]))
        self.assertEqual(["finished"], [body["outcome"] for body in api.bodies("end")])
        with running() as api:
            api.control = dict(api.control, stop=True)
            fit(switchyard.job())
        self.assertEqual([("stopped", 1)], [(body["outcome"], body["epochs_done"]) for body in api.bodies("end")])

    def test_keras(self):
        def fit(job):
            callback = switchyard.keras_callback(job, KERAS, save="m.weights.h5")
            self.assertIsInstance(callback, KERAS.callbacks.Callback)
            KerasModel().fit(callback, job.epochs_total, job.epochs_done)

        self.check(fit, "m.weights.h5", "weights")

    def test_lightning(self):
        def fit(job):
            callback = switchyard.lightning_callback(job, LIGHTNING, save="last.ckpt")
            self.assertIsInstance(callback, LIGHTNING.Callback)
            Trainer().fit(callback, (job.epochs_done, job.epochs_total))

        self.check(fit, "last.ckpt", "checkpoint")

    def test_transformers_stops_and_saves(self):
        with running() as api:
            api.control = dict(api.control, stop=True)
            trainer = HuggingFace(8, 1)
            trainer.train(switchyard.transformers_callback(switchyard.job(), TRANSFORMERS), (0, 3))
        self.assertEqual((True, True), (trainer.control.should_save, trainer.control.should_training_stop))
        self.assertEqual([("stopped", 1)], [(body["outcome"], body["epochs_done"]) for body in api.bodies("end")])
        self.assertEqual(2.0, api.bodies("epochs")[0]["loss"])

    def test_every_lightning_process_calls_save_checkpoint(self):
        with running(RANK=1, LOCAL_WORLD_SIZE=2) as api:
            job, trainer, called = switchyard.job(), Trainer(), []
            trainer.is_global_zero = False
            trainer.save_checkpoint = called.append
            trainer.fit(switchyard.lightning_callback(job, LIGHTNING, save="last.ckpt"), (2, 3))
        self.assertEqual([str(job.checkpoint_dir / "last.ckpt")], called)
        self.assertEqual([], api.bodies("checkpoints"))


if __name__ == "__main__":
    unittest.main()
