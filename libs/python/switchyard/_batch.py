"""How a job forms its optimizer steps: which samples this process takes, in which passes, at which learning rate."""

import collections
import contextlib
import math
import random
import sys
from typing import Any, Callable, ContextManager, Deque, Dict, Iterator, List, Optional, Tuple

from switchyard import _noise
from switchyard._environment import Environment
from switchyard._link import Link, Wish
from switchyard._meter import samples_in
from switchyard._parts import parts_of

# Every tenth step is measured. One that is cut in two for that takes up to twice as long, so once there is enough
# evidence only every fiftieth is.
STEPS_BETWEEN_MEASUREMENTS = 10
STEPS_BETWEEN_CUTS = 50


class Batch:
    """The steps of one process, which all processes of the job take alike."""

    def __init__(self, environment: Environment, link: Link):
        self._environment = environment
        self._link = link
        self._global = environment.global_batch
        # The steps that sampler gave out and that the loop has not come to yet: their samples, the batch they are of,
        # and the passes that go with it.
        self._given: Deque[Tuple[int, Optional[int], Wish]] = collections.deque()
        self._now: Optional[int] = None
        self._of = self._global
        self._wish: Optional[Wish] = None
        self._agreed = link.wish
        # With which micro-batch the code runs, as far as it lets the scheduler choose; None: it does not.
        self.followed: Optional[Wish] = None
        self.follows_global = False
        # Samples of a pass and passes of a step of code that follows nothing; None: it has not said so.
        self.own: Optional[Tuple[int, int]] = None
        self.noise = _noise.Noise()
        self._smoothed: Optional[Tuple[float, float]] = None
        self._square: Optional[Callable[[], Any]] = None
        self._replicated: Any = None
        self._watched = 0
        self._samples = 0.0

    @property
    def global_batch(self) -> Optional[int]:
        """Samples of one optimizer step of the whole job."""
        self.follows_global = True
        if self._environment.world_size == 1:
            self._agree()
        return self._global

    def watch(self, model: Any) -> None:
        """Measures the gradient noise of a model, or of what a callable says is the squared norm of the gradient."""
        if hasattr(model, "register_comm_hook"):
            self._replicated = model
            _noise.hook(model, self._replicas)
        elif hasattr(model, "parameters"):
            parameters = list(model.parameters())
            self._square = lambda: _noise.squared_norm(parameters)
        else:
            self._square = model

    def samples_of_step(self, own: Optional[int]) -> int:
        """Samples of the running step in all processes, of which this one has own."""
        return self._now or (own or 0) * self._environment.world_size

    def sampler(self, length: int, epoch: int, seed: int, had: int = 0) -> Iterator[List[int]]:
        """This process's share of each step of an epoch over so many samples, shuffled alike in every process.

        The first ones of the order were trained before.
        """
        order = list(range(length))
        random.Random("%d %d" % (seed, epoch)).shuffle(order)
        environment = self._environment
        self.follows_global = True
        self._given.clear()
        step = 0
        while had < length:
            if environment.world_size == 1 or step % environment.heartbeat_steps == 0:
                self._agree()
            samples = min(self._step_samples(), length - had)
            if samples < environment.device_count:
                return  # a device would have none
            self._given.append((samples, self._global, self._agreed))
            yield order[had + self._bound(samples, 0) : had + self._bound(samples, environment.own_devices)]
            had += samples
            step += 1

    def sampler_steps(self, length: int) -> int:
        """How many steps sampler makes of an epoch over so many samples, if the batch stays as it is."""
        samples = self.global_batch or self._step_samples()
        whole, rest = divmod(length, samples)
        return whole + int(rest >= self._environment.device_count)

    def begin(self) -> None:
        """The loop has come to the next batch."""
        self._now, self._of, self._wish = self._given.popleft() if self._given else (None, self._global, None)

    def parts(self, batch: Any) -> Iterator[Tuple[Any, float]]:
        """See Job.accumulate."""
        return ((part, weight) for part, weight, _ in self.marked_parts(batch))

    def marked_parts(self, batch: Any) -> Iterator[Tuple[Any, float, bool]]:
        """The parts of a batch with their weights, and whether each is the last."""
        wish, environment = self._wish or self._link.wish, self._environment
        most, own, count = wish.micro_batch, environment.own_devices, samples_in(batch)
        if not self.follows_global and environment.batch_size is not None:
            most = min(most or environment.batch_size, environment.batch_size)
        most = most or environment.batch_size
        if count is not None:
            self.followed = wish._replace(micro_batch=most)
        samples, scale = count or 0, 1.0
        if self._now and count:
            # The processes average their gradients, and their shares may differ by a sample.
            samples, scale = self._now, count * environment.world_size / self._now
        self._samples = samples if self._now else samples * environment.world_size
        largest = sys.maxsize if most is None else most * own
        measured = self._measures_next(count, largest)
        if measured and count is not None:
            largest = min(largest, -(-count // 2))
        first: Optional[Tuple[float, Any]] = None
        done = 0.0
        for part, weight in parts_of(batch, largest):
            done += weight
            last = done > 1 - 1e-9
            with self._exchange(last):
                yield part, weight * scale, last
            if measured and first is None and self._square is not None:
                first = (weight, self._square())
        if first is not None and self._square is not None and count:
            weight, square = first
            self.noise.add(weight * count, square / (weight * weight), count, self._square())

    def lr_scale(self) -> float:
        """By which factor the learning rate for the base batch grows with the batch of this step."""
        environment, batch = self._environment, self._of or self._global
        if not environment.base_batch or not batch:
            return 1.0
        base, rule = environment.base_batch, environment.learning_rate
        if rule == "linear":
            return batch / base
        if rule == "sqrt":
            return math.sqrt(batch / base)
        square, variance = self._smoothed or (0.0, 0.0)
        if rule != "adascale" or square + variance <= 0:
            return 1.0
        return (variance / base + square) / (variance / batch + square)

    def ran(self) -> Dict[str, int]:
        """What the code ran with, as the job API takes it."""
        if self.own is not None:
            micro, passes = self.own
            samples = micro * passes * self._environment.device_count
            return {"micro_batch": micro, "accumulation": passes, "global_batch": samples}
        if self.followed is None and not self.follows_global:
            return {}
        wish, environment = self.followed or self._link.wish, self._environment
        micro = wish.micro_batch or environment.batch_size or 0
        if not micro:
            return {}
        body = {"micro_batch": micro, "generation": wish.generation}
        batch = self._of or self._global
        if self.follows_global and batch:
            body.update(global_batch=batch, accumulation=-(-batch // (micro * environment.device_count)))
        return body

    def samples_per_step(self) -> int:
        """Samples that this process takes in a step, unless it says otherwise."""
        if self.own is None:
            return self._environment.samples_per_step
        return self.own[0] * self.own[1] * self._environment.own_devices

    def _measures_next(self, samples: Optional[int], largest: int) -> bool:
        """Whether the passes of the next step are compared. One pass alone shows no noise, so it is cut in two."""
        if self._square is None or samples is None or samples < 2:
            return False
        cut = samples <= largest and self.noise.count >= _noise.EVIDENCE
        between = STEPS_BETWEEN_CUTS if cut else STEPS_BETWEEN_MEASUREMENTS
        self._watched += 1
        return self._watched % between == 1

    def _exchange(self, last: bool) -> ContextManager[Any]:
        """Keeps replicas from exchanging gradients before the last pass of a step."""
        if last or self._replicated is None:
            return contextlib.nullcontext()
        context: ContextManager[Any] = self._replicated.no_sync()
        return context

    def _replicas(self, square_before: Any, square_after: Any) -> None:
        """Squared norms of this process's gradient and of the average over all."""
        world = self._environment.world_size
        if self._samples:
            own = self._samples / world
            self.noise.add(own, square_before, self._samples, square_after)

    def _step_samples(self) -> int:
        """Samples of one step of sampler in all processes."""
        return self._global or self._environment.samples_per_step * self._environment.world_size or 1

    def _bound(self, samples: int, devices: int) -> int:
        return samples * (self._environment.device_rank + devices) // self._environment.device_count

    def _agree(self) -> None:
        """Makes every process take the batch, and the noise, that the first one knows."""
        self._agreed = self._link.wish
        wanted, smoothed = self._agreed.global_batch or self._global, self.noise.averages()
        if self._environment.world_size > 1:
            torch: Any = sys.modules.get("torch")
            distributed = getattr(torch, "distributed", None)
            if distributed is None or not distributed.is_available() or not distributed.is_initialized():
                return  # they could take different steps, and wait for each other for ever
            device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
            word = torch.tensor([float(wanted or 0)] + list(smoothed or (0.0, 0.0)), dtype=torch.float64, device=device)
            distributed.broadcast(word, 0)
            first, square, variance = word.tolist()
            wanted, smoothed = int(first) or None, (square, variance)
        self._global, self._smoothed = wanted, smoothed
