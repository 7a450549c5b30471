"""The adapters, driven in the order in which the frameworks call their hooks."""

import types
import unittest
from pathlib import Path

import switchyard
from tests.test_job import running

KERAS = types.SimpleNamespace(callbacks=types.SimpleNamespace(Callback=type("Callback", (), {"model": None})))
LIGHTNING = types.SimpleNamespace(Callback=type("Callback", (), {}))


class KerasModel:
    """Calls the hooks as Model.fit does."""

    stop_training = False

    def save_weights(self, path):
        Path(path).write_text("weights")

    def fit(self, callback, epochs, initial_epoch):
        callback.model = self
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
    callback_metrics = {"loss": 2.0, "accuracy": 0.5}

    def save_checkpoint(self, path):
        Path(path).write_text("checkpoint")

    def fit(self, callback, epochs):
        for _ in range(*epochs):
            callback.on_train_epoch_start(self, None)
            for index in range(2):
                callback.on_train_batch_end(self, None, {"loss": 3.0}, None, index)
            callback.on_train_epoch_end(self, None)
            if self.should_stop:
                break
        callback.on_train_end(self, None)


class Callbacks(unittest.TestCase):
    def check(self, fit, name, text):
        with running() as api:
            job = switchyard.job()
            fit(job)
            self.assertEqual(text, (job.checkpoint_dir / name).read_text())
        self.assertEqual([1, 2, 3], [body["epochs_done"] for body in api.bodies("epochs")])
        self.assertEqual([1, 2, 3], [body["epochs_done"] for body in api.bodies("checkpoints")])
        ended = api.bodies("epochs")[0]
        self.assertEqual((2, 2.0, {"accuracy": 0.5}), (ended["steps"], ended["loss"], ended["metrics"]))
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
