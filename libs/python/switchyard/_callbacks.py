"""Adapters for training loops that belong to a framework. None is imported: the caller hands over its module."""

from typing import Any, Dict, Optional

from switchyard._job import Job


def keras_callback(job: Job, keras: Any, save: Optional[str] = None) -> Any:
    """A Keras callback that drives job; keras is the user's module (``keras`` or ``tf.keras``).

    save names a checkpoint of the weights to write after each epoch (Keras 3 wants ``*.weights.h5``). Start with
    ``model.fit(..., epochs=job.epochs_total, initial_epoch=job.epochs_done, callbacks=[...])``, after
    ``job.load(save, model.load_weights)`` for a job that may be resumed.
    """

    class SwitchyardCallback(keras.callbacks.Callback):  # type: ignore[misc]
        """Reports steps and epochs, saves, and stops the training when the scheduler asks."""

        def on_epoch_begin(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
            job.start_epoch()

        def on_train_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
            job.step(**(logs or {}))

        def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
            if save is not None:
                job.save(self.model.save_weights, save, epochs_done=job.epochs_done + 1)
            job.end_epoch(**(logs or {}))
            if job.should_stop():
                self.model.stop_training = True

        def on_train_end(self, logs: Optional[Dict[str, Any]] = None) -> None:
            job.finish()

    return SwitchyardCallback()


def lightning_callback(job: Job, lightning: Any, save: Optional[str] = None) -> Any:
    """A Lightning callback that drives job; lightning is the user's module (``lightning`` or ``pytorch_lightning``).

    save names a Lightning checkpoint to write after each epoch; resume with
    ``trainer.fit(model, loader, ckpt_path=job.load(save, str))``. Lightning counts the epochs of a resumed
    checkpoint itself: give it ``max_epochs=job.epochs_total``.
    """

    class SwitchyardCallback(lightning.Callback):  # type: ignore[misc]
        """Reports steps and epochs, saves, and stops the training when the scheduler asks."""

        def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
            job.start_epoch()

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, *batch_and_rest: Any) -> None:
            loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
            job.step(loss=loss)

        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            if save is not None:
                self._save(trainer)
            job.end_epoch(**{str(name): value for name, value in trainer.callback_metrics.items()})
            if job.should_stop():
                trainer.should_stop = True

        def on_train_end(self, trainer: Any, module: Any) -> None:
            job.finish()

        def _save(self, trainer: Any) -> None:
            # save_checkpoint is collective: every process has to call it, though only the first writes.
            if trainer.is_global_zero:
                job.save(trainer.save_checkpoint, save, epochs_done=job.epochs_done + 1, all_ranks=True)
            else:
                trainer.save_checkpoint(str(job.checkpoint_dir / save))

    return SwitchyardCallback()
