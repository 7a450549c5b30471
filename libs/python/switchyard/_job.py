"""A training job as its own code sees it: which epochs are left, what to report, when to leave."""

import contextlib
import itertools
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Set, Tuple, Type

from switchyard import _checkpoint
from switchyard._batch import Batch
from switchyard._environment import Environment, make_snapshot_dir
from switchyard._gate import gated
from switchyard._http import address_from_environment, complain
from switchyard._link import FAILED, FINISHED, STOPPED, Link
from switchyard._meter import (
    NONFINITE, NONFINITE_STEPS, Meter, Stopwatch, figures, gpu_memory_bytes, samples_in, sendable
)  # fmt: skip
from switchyard._stops import Stops
from switchyard._threads import Threads

SECONDS_BETWEEN_HEARTBEATS = 1.0


class Sampler:
    """The shares of this process, epoch by epoch."""

    def __init__(self, job: "Job", length: int, seed: int):
        self._job = job
        self._length = length
        self._seed = seed

    def __iter__(self) -> Iterator[List[int]]:
        had, self._job._unskipped = self._job._epoch_samples, 0
        return self._job._batch.sampler(self._length, self._job.epochs_done, self._seed, had)

    def __len__(self) -> int:
        """About how many steps an epoch has; the batch may change in the middle of one."""
        return self._job._batch.sampler_steps(self._length)


class Job:
    """One process's view of its job. Made by switchyard.job(); one per process, used from the training thread.

    Attributes, all from the environment: uuid, name, attempt, restarted, epochs_total (None outside of Switchyard
    until epochs is told), max_steps (None: as many as the epochs have), batch_size (per device), training_set_size, steps_per_epoch, samples_per_step, num_devices
    (of this node), num_nodes, node_list, rank, world_size, checkpoint_dir (a pathlib.Path, the same for every attempt).
    epochs_done counts the whole epochs behind us; load may set it back to what the checkpoint holds.
    """

    def __init__(
        self, environ: Mapping[str, str], epochs: Optional[int] = None, batch_size: Optional[int] = None
    ):
        environment = Environment.read(environ)
        if environment.batch_size is None:
            environment = environment._replace(batch_size=batch_size)
        self.environment = environment
        self.uuid = environment.uuid
        self.name = environment.name
        self.attempt = environment.attempt
        self.restarted = environment.restarted
        self.epochs_done = environment.epochs_done
        self.epochs_total = environment.epochs or epochs
        self.max_steps = environment.max_steps
        self.batch_size = environment.batch_size
        self.training_set_size = environment.training_set_size
        self.steps_per_epoch = environment.steps_per_epoch
        self.samples_per_step = environment.samples_per_step
        self.num_devices = environment.num_devices
        self.num_nodes = environment.num_nodes
        self.node_list = environment.node_list
        self.rank = environment.rank
        self.world_size = environment.world_size
        self.checkpoint_dir = environment.checkpoint_dir
        if self.uuid:
            make_snapshot_dir(self.checkpoint_dir)

        self._pid = os.getpid()
        self._threads = Threads(environ)
        self._link = Link(
            address_from_environment(environ), self.uuid, self.rank, environment.batch_generation
        )
        self._steps_done = self.epochs_done * (self.steps_per_epoch or 0)
        self._loaded: Optional[_checkpoint.Progress] = None
        # An earlier attempt trained, and no call of load has read what it saved.
        self._unread = self.restarted
        # An earlier attempt trained, and this one found nothing of it. Only the folder as it was at the start shows that:
        # another process of the job may already be an epoch ahead.
        self._lost = self.attempt > 1 and self.epochs_done > 0 and not _checkpoint.any_in(self.checkpoint_dir)
        self._heartbeat = Meter()
        self._epoch = Meter()
        self._reported: Dict[str, Any] = {}
        self._step_values: Dict[str, Any] = {}
        self._waited = 0.0
        self._step_watch = Stopwatch()
        self._epoch_watch = Stopwatch()
        self._heartbeat_watch = Stopwatch()
        # How many steps the epoch has, as far as it is known.
        self._epoch_length = self.steps_per_epoch
        self._begun = False
        self._in_step = False
        # The marks of values that are not finite of which stderr has said so.
        self._warned: Set[str] = set()
        self._epoch_open = False
        self._epoch_trained = False
        self._in_context = False
        self._ended = False
        self._own_samples: Optional[int] = None
        self._batch = Batch(environment, self._link)
        self._stops = Stops(environment, self._link)
        # Steps of the running epoch, and their samples in all processes, that an earlier attempt trained; then those of
        # this one are added. The first _unskipped batches are still to be left out.
        self._earlier_steps = 0
        self._epoch_samples = 0
        self._unskipped = 0
        self._resumable = False
        self._link.stop_asked(self.epochs_done)
        # A stop is obeyed after an epoch of this attempt at the earliest: else a job could be moved about for ever.
        self._stop_asked = False

    def __enter__(self) -> "Job":
        self._in_context = True
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], problem: Optional[BaseException], where: Optional[TracebackType]
    ) -> None:
        if self._forked():
            return
        self._in_context = False
        if problem is None or (isinstance(problem, SystemExit) and not problem.code):
            self.finish()
        else:
            self._end(FAILED, "%s: %s" % (type(problem).__name__, problem))

    def epochs(self, total: Optional[int] = None) -> Iterator[int]:
        """The numbers of the epochs still to do; each is reported as done when the loop comes back for the next.

        Ends early, after a finished epoch, when the scheduler wants the devices; never with only the last epoch
        left. ``total`` is how many epochs there are in all when the scheduler says nothing of it. A restarted job that
        has not called load, and whose folder of checkpoints is empty, is warned: its state may be lost.
        """
        if self.epochs_total is None:
            self.epochs_total = total
        if self.epochs_total is None and self.max_steps is None:
            raise ValueError("how many epochs? set EPOCHS_TO_BE_DONE or call job.epochs(total)")
        if self._lost and self._unread and not self._begun:
            complain(
                "WARNING: going on after %d epochs, but nothing is saved in %s and job.load was not called: unless this "
                "code reads their state from elsewhere, they are lost. job.load(PATH, reader) reads it and counts them"
                % (self.epochs_done, self.checkpoint_dir)
            )
        while not self._complete() and not self._leaves():
            self.start_epoch()
            yield self.epochs_done
            if self._stops.stopped:
                break
            if self._epoch_open:
                self.end_epoch()
        if not self._in_context:
            self.finish()

    def steps(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The batches of loader, each counted as one optimizer step when the loop comes back for the next.

        A body that calls step itself is not counted twice. report, inside the body, is about the current step. In an
        epoch that an earlier attempt began, the batches that it trained are left out. Ends early after step max_steps of
        the training, or after a step at which should_save or should_stop has told of a stop.
        """
        self._open_epoch()
        self._resumable = True
        self._epoch_length = _length(loader) or self.steps_per_epoch
        batches = iter(loader)
        # The sampler leaves the trained batches out itself, and a lazy loader only asks it for the first of the others.
        batches = itertools.chain(list(itertools.islice(batches, 1)), batches)
        trained, self._unskipped = self._unskipped, 0
        for batch in itertools.islice(batches, trained, None):
            before = os.getpid(), self._steps_done
            self._batch.begin()
            self._in_step, self._own_samples = True, samples_in(batch)
            try:
                yield batch
            finally:  # the body may leave the loop after its step
                self._in_step = False
                if before == (os.getpid(), self._steps_done):  # a child forked in the body leaves the step to its parent
                    values, self._step_values = self._step_values, {}
                    self._count_step(self._own_samples, values)
            if self._stops.stopped:
                return
            if self._complete():
                break
        self._epoch_trained = True

    def step(
        self,
        loss: Any = None,
        samples: Optional[int] = None,
        grad_sqr: Any = None,
        grad_var: Any = None,
        **metrics: Any
    ) -> None:
        """One optimizer step. samples: how many this process trained on, samples_per_step unless given.

        grad_sqr and grad_var: estimates of the squared norm of the true gradient and of the variance of a
        one-sample gradient (together the gradient noise scale). Numbers and tensors are both welcome.
        """
        self._open_epoch()
        values, self._step_values = self._step_values, {}
        values.update(metrics, loss=loss, grad_sqr=grad_sqr, grad_var=grad_var)
        self._count_step(samples, values)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Around the exchange of gradients: ``with job.waiting(): all_reduce(gradients)``.

        With one process per device, every process tells how long it waits for the others; the one that hardly ever
        waits holds them up, and the scheduler may replace its device.
        """
        watch = Stopwatch()
        try:
            yield
        finally:
            self._waited += watch.elapsed()

    def report(self, **values: Any) -> None:
        """Values (loss=, accuracy=, ...) of the current step inside job.steps, else of the epoch just trained."""
        if self._in_step:
            self._step_values.update(values)
        else:
            self._reported.update(values)
            self._epoch_trained = not self._stops.stopped

    def start_epoch(self) -> None:
        """Starts the clock of an epoch. Called by epochs, and by the first step of an epoch."""
        self._threads.follow()
        self._begun = True
        self._epoch_open = True
        self._epoch_trained = False
        self._in_step = False
        self._reported = {}
        self._step_values = {}
        self._waited = 0.0
        self._epoch.reset()
        self._epoch_watch.lap()
        self._step_watch.lap()

    def end_epoch(self, loss: Any = None, **metrics: Any) -> None:
        """Reports a whole epoch, then asks the scheduler, for at most two seconds, what to do next.

        Does nothing once the job has stopped within the epoch.
        """
        if self._stops.stopped:
            return
        self._open_epoch()
        self._send_heartbeat()
        self.epochs_done += 1
        earlier, self._earlier_steps, self._epoch_samples, self._unskipped = self._earlier_steps, 0, 0, 0
        # If an earlier attempt began the epoch, the whole is told at the pace of this one.
        whole = 1 + earlier / self._epoch.steps if self._epoch.steps else 1
        self._epoch_open = False
        self._epoch_trained = False
        given = dict(self._reported, loss=loss if loss is not None else self._reported.get("loss"), **metrics)
        given = {name: value for name, value in given.items() if value is not None}
        # A value of the whole epoch stands for those of its steps, also one that cannot be sent.
        values = {name: value for name, value in self._epoch.values().items() if name not in given}
        values.update(sendable(given))
        self._warn_of(values)
        seconds = self._epoch_watch.lap() * whole
        body: Dict[str, Any] = {"epochs_done": self.epochs_done}
        if self._epoch.steps or not earlier:  # else an earlier attempt did all steps: nothing was measured here
            body.update(
                epoch_seconds=seconds,
                steps=self._epoch.steps + earlier,
                samples=round(self._epoch.samples * whole),
            )
        body.update(self._noise())
        body.update(figures(values))
        body.update(self._batch.ran())
        self._link.epoch(body)
        stop = self._link.stop_asked(self.epochs_done)
        if stop is not None:
            self._stop_asked = stop
        self._heartbeat.reset()
        self._step_watch.lap()

    def should_stop(self) -> bool:
        """Whether to leave now: the job is done, the scheduler wants the devices, or runs this job elsewhere.

        Between epochs it is false while only the last one is left: finishing is cheaper than coming back. Code that asks
        after a step, once it has saved its state, can leave at any step; should_save is then asked before.
        """
        if self._epoch_open and self._epoch.steps + int(self._in_step) > 0:
            self._at_step()
        return self._steps_complete() or self._leaves()

    def should_save(self) -> bool:
        """Whether to save now, after an optimizer step: before a stop, and every ten minutes.

        ``if job.should_save(): job.save(state, "state.pt")`` at the end of the body of job.steps is all that a training
        needs to leave at any step, and to go on in the middle of an epoch. The order of the batches must then depend on
        nothing but the epoch, as that of job.sampler.
        """
        return self._at_step()

    def epoch_step(self) -> int:
        """How many steps of the running epoch are done, also by earlier attempts. job.steps leaves these out itself.

        Whoever asks is taken to do so, too: to begin its epoch after them.
        """
        self._resumable, self._unskipped = True, 0
        return self._earlier_steps + self._epoch.steps

    def _at_step(self) -> bool:
        step = self._epoch.steps + int(self._in_step) + self._earlier_steps
        if step == self._epoch_length:
            return False  # the end of the epoch is next, with a checkpoint of its own
        return self._stops.at(self._steps_done + int(self._in_step), self.epochs_done)[1]

    def _leaves(self) -> bool:
        """should_stop, as far as it is known."""
        if self._link.fenced or self._stops.stopped:
            return True
        left = None if self.epochs_total is None else self.epochs_total - self.epochs_done
        return self._stop_asked and (left is None or left > 1)

    def watch(self, model: Any) -> None:
        """Measures the gradient noise of a PyTorch model, for the scheduler and for lr_scale.

        A DistributedDataParallel model gets a communication hook, which compares the gradients of the processes. For
        other models accumulate compares the first pass of a step with the whole step, and so that there is more than
        one, cuts every tenth step in two. Instead of a model, a callable may return the squared norm of the gradient
        accumulated so far.
        """
        self._batch.watch(model)

    def sampler(self, length: int, seed: int = 0) -> "Sampler":
        """The indices of this process's share of each step, for an epoch over length samples in a shuffled order.

        For ``DataLoader(dataset, batch_sampler=job.sampler(len(dataset)))``. Steps have global_batch samples, shared
        out as evenly as they divide, and change while the training runs if the scheduler asks for another batch.
        """
        return Sampler(self, length, seed)

    def accumulate(self, batch: Any) -> Iterator[Tuple[Any, float]]:
        """The batch of one optimizer step in parts, for a pass each, with the weight of each part.

        ``for part, weight in job.accumulate(batch): (weight * mean_loss(part)).backward()``, then the optimizer's step.
        The weights add up to 1, so the gradient is that of the whole batch, however small the parts are; with a sampler
        whose shares differ, the average over the processes is. The scheduler chooses the size of parts; else the batch
        is one part.
        """
        return self._batch.parts(batch)

    def micro_batches(self, batches: Iterable[Any], optimizer: Any) -> Iterator[Any]:
        """The parts of all batches, for a loop that is left as it is and steps once for each batch it gets.

        ``for x, y in job.micro_batches(job.steps(loader), optimizer)``: the scheduler chooses the size of parts as with
        accumulate. step and zero_grad of the optimizer do nothing between the parts of a batch. A loop that clips
        gradients, uses a GradScaler, or steps a learning rate for each batch has to use accumulate.
        """
        return gated(map(self._batch.marked_parts, batches), optimizer)

    def global_batch(self) -> Optional[int]:
        """Samples of one optimizer step on all devices; None: the job has no batch of its own but batch_size on each.

        Whoever asks is taken to follow it. A sampler does.
        """
        return self._batch.global_batch

    def lr_scale(self) -> float:
        """The factor of the learning rate for the batch of this step, by the rule of the job; 1 with a fixed batch."""
        return self._batch.lr_scale()

    def micro_batch(self) -> Optional[int]:
        """Samples per device and forward pass that the scheduler asked for last; None: as the job likes.

        Whoever asks is taken to use it from then on. accumulate does both.
        """
        self._batch.followed = self._link.wish
        return self._link.wish.micro_batch

    def accumulation(self) -> Optional[int]:
        """Forward passes per optimizer step that go with micro_batch; None: as the job likes."""
        return self._link.wish.accumulation or self.environment.accumulation

    def runs(self, micro_batch: int, accumulation: int = 1) -> None:
        """Says which batch the code runs, whatever the scheduler asks for: samples of a pass, passes of a step.

        For frameworks that cannot change it while they train.
        """
        self._batch.own = (micro_batch, accumulation)

    def save(self, content: Any, name: str, epochs_done: Optional[int] = None, all_ranks: bool = False) -> Path:
        """Writes a checkpoint that is whole or absent, tells the scheduler, and returns its path.

        content is pickled, or, when callable, called with the path of a temporary file to write
        (``lambda path: torch.save(model.state_dict(), path)``). epochs_done: the whole epochs in it; unless given,
        the running one counts once job.steps is through or the epoch's values are reported. Only rank 0 writes;
        with all_ranks every process does (give each its own name).
        """
        path = self.checkpoint_dir / name
        if self._link.fenced:
            complain("checkpoint %s not written: it belongs to a newer attempt now" % path)
            return path
        if self.rank != 0 and not all_ranks:
            return path
        if self._unread and path.exists():
            complain(
                "WARNING: this restarted job replaces %s and has not called job.load: unless it reads its checkpoint "
                "in another way, what earlier attempts trained is lost" % path
            )
            self._unread = False
        progress = self._progress(epochs_done)
        watch = Stopwatch()
        body: Dict[str, Any] = {"epochs_done": progress.epochs_done, "bytes": _checkpoint.write(path, content, progress)}
        if progress.epoch_step:
            body.update(self._within(progress.epoch_step))
        self._link.checkpoint(dict(body, seconds=watch.lap()), path.absolute())
        self._stops.saved()
        self._step_watch.lap()
        return path

    def _progress(self, epochs_done: Optional[int]) -> _checkpoint.Progress:
        """What a checkpoint holds now. In the body of job.steps the step is taken to be done."""
        in_step, noise = int(self._in_step), self._batch.noise.state()
        steps = self._steps_done + in_step
        if epochs_done is None:
            epochs_done = self.epochs_done + int(self._epoch_open and self._epoch_trained)
            if self._epoch_open and not self._epoch_trained and self._resumable:
                samples = self._epoch_samples + in_step * self._batch.samples_of_step(self._own_samples)
                done = self._earlier_steps + self._epoch.steps + in_step
                return _checkpoint.Progress(epochs_done, steps, noise, done, samples)
        return _checkpoint.Progress(epochs_done, steps, noise)

    def load(self, name: str, reader: Optional[Callable[[str], Any]] = None, default: Any = None) -> Any:
        """What save wrote under name: unpickled, or reader(path) (``torch.load``); default where there is nothing.

        Before the first epoch it also sets epochs_done to what the checkpoint holds (the least, of several), so that
        epochs goes on from there whatever was reported; with no checkpoint at all it starts from the first.
        """
        path = self.checkpoint_dir / name
        self._unread = False
        try:
            content = _checkpoint.read(path, reader)
        except FileNotFoundError:
            if not self._begun and self._loaded is None and self.epochs_done > 0:
                complain("no checkpoint %s: starting from the first epoch" % path)
                self._continue_from(_checkpoint.Progress(0, 0))
            return default
        progress = _checkpoint.progress_of(path)
        if progress is not None and not self._begun:
            self._loaded = min(progress, self._loaded or progress, key=_checkpoint.Progress.position)
            self._continue_from(self._loaded)
        return content

    def finish(self) -> None:
        """Reports the end: finished, or stopped for the scheduler. Not needed inside ``with``."""
        if self._forked():
            return
        if self._epoch_open and self._epoch_trained:
            self.end_epoch()
        self._end(STOPPED if self._leaves() and not self._complete() else FINISHED, "")

    def leave(self) -> None:
        """Called at the exit of the process: a loop without ``with`` is over, or something went wrong in it."""
        if self._ended or self._forked():
            return
        if self._complete() or self._leaves():
            self.finish()
        else:
            self._link.last_words()

    def _forked(self) -> bool:
        """Whether this is a child of the process that made the job. How the job ends is for its parent to say."""
        return self._pid != os.getpid()

    def _complete(self) -> bool:
        return self._steps_complete() or (self.epochs_total is not None and self.epochs_done >= self.epochs_total)

    def _steps_complete(self) -> bool:
        return self.max_steps is not None and self._steps_done >= self.max_steps

    def _continue_from(self, progress: _checkpoint.Progress) -> None:
        self.epochs_done, self._steps_done = progress.position()
        self._earlier_steps, self._epoch_samples = progress.epoch_step, progress.epoch_samples
        self._unskipped = self._earlier_steps
        self._batch.noise.restore(progress.noise)

    def _open_epoch(self) -> None:
        if not self._epoch_open:
            self.start_epoch()

    def _count_step(self, samples: Optional[int], values: Dict[str, Any]) -> None:
        if self._unskipped:  # the code does not go on in the middle of an epoch: it begins it again
            self._earlier_steps, self._epoch_samples, self._unskipped = 0, 0, 0
        self._threads.follow()
        seconds = self._step_watch.lap()
        count = self._batch.samples_per_step() if samples is None else int(samples)
        self._steps_done += 1
        self._epoch_samples += self._batch.samples_of_step(count)
        waited, self._waited = self._waited, 0.0
        self._heartbeat.add(seconds, count, values, waited)
        self._epoch.add(seconds, count, values)
        due = self._heartbeat.steps >= self.environment.heartbeat_steps
        if (due or self._heartbeat_watch.elapsed() >= SECONDS_BETWEEN_HEARTBEATS) and self._link.ready_for_heartbeat():
            self._send_heartbeat()

    def _send_heartbeat(self) -> None:
        meter = self._heartbeat
        self._heartbeat_watch.lap()
        if meter.steps == 0:
            return
        body: Dict[str, Any] = {
            "step": self._steps_done,
            "epoch": self.epochs_done,
            "steps": meter.steps,
            "step_seconds": meter.seconds / meter.steps,
            "samples": meter.samples,
        }
        body.update(self._within(self._earlier_steps + self._epoch.steps))
        if self._stops.announced:
            body["stops_at_steps"] = True
        if meter.wait_seconds > 0:
            body["wait_seconds"] = meter.wait_seconds / meter.steps
        body.update(self._noise())
        values = meter.values()
        if NONFINITE_STEPS in values and NONFINITE_STEPS not in self._warned:
            self._warned.add(NONFINITE_STEPS)
            complain(
                "WARNING: the loss of a step in epoch %d is NaN or infinite: an epoch with such steps has no mean loss, "
                "but the metric %s, their number" % (self.epochs_done + 1, NONFINITE_STEPS)
            )
        body.update(figures(values))
        memory_bytes = gpu_memory_bytes()
        if memory_bytes is not None:
            body["gpu_memory_bytes"] = memory_bytes
        body.update(self._batch.ran())
        self._link.steps(body)
        meter.reset()

    def _warn_of(self, values: Mapping[str, float]) -> None:
        """Says once of each value of the epoch just done that it is not finite; of the losses of steps, heartbeats do."""
        for mark in values:
            if not mark.startswith(NONFINITE) or mark == NONFINITE_STEPS or mark in self._warned:
                continue
            self._warned.add(mark)
            complain(
                "WARNING: %s of epoch %d is NaN or infinite: the metric %s is sent in its place"
                % (mark[len(NONFINITE):], self.epochs_done, mark)
            )

    def _within(self, step: int) -> Dict[str, int]:
        """How far the epoch is, and of how many steps; a length that it has passed was a wrong guess."""
        if self._epoch_length is None or self._epoch_length < step:
            return {"epoch_step": step}
        return {"epoch_step": step, "epoch_steps": self._epoch_length}

    def _noise(self) -> Dict[str, float]:
        averages = self._batch.noise.averages()
        return {} if averages is None else {"grad_sqr": averages[0], "grad_var": averages[1]}

    def _end(self, outcome: str, message: str) -> None:
        if self._ended:
            return
        self._ended = True
        self._link.end(outcome, self.epochs_done, message)


def _length(loader: Any) -> Optional[int]:
    """How many batches loader has; None where it does not say."""
    try:
        return len(loader) or None
    except TypeError:
        return None
