"""Adapters for training loops that belong to a framework. None is imported: the caller hands over its module."""

from typing import Any, Dict, Optional

from switchyard._job import Job


def keras_callback(job: Job, keras: Any, save: Optional[str] = None, batch_size: Optional[int] = None) -> Any:
    """A Keras callback that drives job; keras is the user's module (``keras`` or ``tf.keras``).

    batch_size is what ``fit`` is given, for all devices of this process (unless given, job.batch_size on each). Keras
    cannot change it during a training, so it is reported as what runs.
    save names a checkpoint of the weights to write after each epoch (Keras 3 wants ``*.weights.h5``). Start with
    ``model.fit(..., epochs=job.epochs_total, initial_epoch=job.epochs_done, callbacks=[...])``, after
    ``job.load(save, model.load_weights)`` for a job that may be resumed.
    """

    class SwitchyardCallback(keras.callbacks.Callback):  # type: ignore[misc]
        """Reports steps and epochs, saves, and stops the training when the scheduler asks."""

        def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
            own = batch_size // job.environment.own_devices if batch_size else job.batch_size
            if own:
                job.runs(own)

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
    checkpoint itself: give it ``max_epochs=job.epochs_total``. With a global batch the trainer accumulates as many
    batches of its loader as make the base batch; what runs is reported. The learning rate follows no other batch.
    """

    class SwitchyardCallback(lightning.Callback):  # type: ignore[misc]
        """Reports steps and epochs, saves, and stops the training when the scheduler asks."""

        def on_train_start(self, trainer: Any, module: Any) -> None:
            self._steps = getattr(trainer, "global_step", None)
            micro_batch = getattr(getattr(trainer, "train_dataloader", None), "batch_size", None)
            passes = getattr(trainer, "accumulate_grad_batches", 1)
            if not isinstance(micro_batch, int) or not isinstance(passes, int):
                return  # a sampler of batches decides, such as job.sampler
            base = job.environment.base_batch
            if base is not None:
                passes = max(1, round(base / (micro_batch * job.environment.device_count)))
                trainer.accumulate_grad_batches = passes
            job.runs(micro_batch, passes)

        def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
            job.start_epoch()

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, *batch_and_rest: Any) -> None:
            steps = getattr(trainer, "global_step", None)
            if steps is not None and steps == self._steps:
                return  # a pass of a step that goes on
            self._steps = steps
            loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
            job.step(loss=loss)

        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            if save is not None:
                self._save(trainer, save)
            job.end_epoch(**{str(name): value for name, value in trainer.callback_metrics.items()})
            if job.should_stop():
                trainer.should_stop = True

        def on_train_end(self, trainer: Any, module: Any) -> None:
            job.finish()

        def _save(self, trainer: Any, name: str) -> None:
            # save_checkpoint is collective: every process has to call it, though only the first writes.
            if trainer.is_global_zero:
                job.save(trainer.save_checkpoint, name, epochs_done=job.epochs_done + 1, all_ranks=True)
            else:
                trainer.save_checkpoint(str(job.checkpoint_dir / name))

    return SwitchyardCallback()


def transformers_callback(job: Job, transformers: Any) -> Any:
    """A callback for the Trainer of Hugging Face; transformers is the user's module.

    The Trainer cannot change its batch during a training. Give its arguments the batch of this attempt,
    ``per_device_train_batch_size=job.batch_size, gradient_accumulation_steps=job.accumulation() or 1``; what runs is
    reported. With ``output_dir=str(job.checkpoint_dir)`` it saves after each epoch; resume with
    ``trainer.train(resume_from_checkpoint=transformers.trainer_utils.get_last_checkpoint(str(job.checkpoint_dir)))``.
    """

    class SwitchyardCallback(transformers.TrainerCallback):  # type: ignore[misc]
        """Reports steps and epochs, and stops the training when the scheduler asks."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            job.runs(args.per_device_train_batch_size, args.gradient_accumulation_steps)

        def on_epoch_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            job.start_epoch()

        def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            job.step()

        def on_log(
            self, args: Any, state: Any, control: Any, logs: Optional[Dict[str, Any]] = None, **rest: Any
        ) -> None:
            if logs and "loss" in logs:
                job.report(loss=logs["loss"])

        def on_epoch_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            job.end_epoch()
            control.should_save = True
            if job.should_stop():
                control.should_training_stop = True

        def on_train_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            job.finish()

    return SwitchyardCallback()
