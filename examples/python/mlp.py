"""A small network in plain Python: tanh layer, linear layer, softmax, momentum. Real work, nothing to install.

Everything is a function of the seed and the state, so a resumed run is bit for bit the uninterrupted one.
"""

import hashlib
import math
import random
import struct
from operator import mul
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

INPUTS = 64
CLASSES = 4
# Chosen for about half a second an epoch at 400 samples in batches of 32.
HIDDEN = 240
LEARNING_RATE = 0.004
MOMENTUM = 0.9

Sample = Tuple[List[float], int]
Matrix = List[List[float]]


class StepResult(NamedTuple):
    """Mean loss and accuracy of a step, and Pollux's estimates of the gradient (eq. 8 and below, OSDI 2021)."""

    loss: float
    accuracy: float
    grad_sqr: float
    grad_var: float


def training_set(size: int, seed: int = 1) -> List[Sample]:
    """size samples in CLASSES overlapping clouds."""
    noise = random.Random(seed)
    centers = [[noise.gauss(0, 0.25) for _ in range(INPUTS)] for _ in range(CLASSES)]
    samples = []
    for index in range(size):
        label = index % CLASSES
        samples.append(([noise.gauss(center, 1.0) for center in centers[label]], label))
    return samples


def batches(samples: List[Sample], batch_size: int, epoch: int, seed: int = 2) -> Iterator[List[Sample]]:
    """The epoch's whole batches, in an order that only epoch and seed decide; a remainder is left out."""
    order = list(range(len(samples)))
    random.Random(seed * 1_000_003 + epoch).shuffle(order)
    for start in range(0, len(order) - batch_size + 1, batch_size):
        yield [samples[index] for index in order[start : start + batch_size]]


class MLP:
    """The network and its optimizer. Weights are rows per unit, the bias last."""

    def __init__(self, seed: int = 3):
        start = random.Random(seed)
        self.hidden = _rows(start, HIDDEN, INPUTS)
        self.output = _rows(start, CLASSES, HIDDEN)
        self._hidden_velocity = _zeros(HIDDEN, INPUTS)
        self._output_velocity = _zeros(CLASSES, HIDDEN)

    def state(self) -> Dict[str, Any]:
        """All that a checkpoint needs."""
        return dict(self.__dict__)

    def restore(self, state: Dict[str, Any]) -> None:
        """The opposite of state."""
        self.__dict__.update(state)

    def digest(self) -> str:
        """A fingerprint of the exact weights."""
        flat = [weight for matrix in (self.hidden, self.output) for row in matrix for weight in row]
        return hashlib.sha256(struct.pack("<%dd" % len(flat), *flat)).hexdigest()[:16]

    def train(self, batch: List[Sample]) -> StepResult:
        """One optimizer step. The gradient is taken in two halves, whose difference shows its noise."""
        middle = len(batch) // 2
        halves = [half for half in (batch[:middle], batch[middle:]) if half]
        sums = [self._gradient(half) for half in halves]
        means = [_flat(grads, len(half)) for grads, half in zip(sums, halves)]
        whole = [sum(parts) / len(batch) for parts in zip(*(_flat(grads, 1) for grads in sums))]
        grad_sqr, grad_var = _noise(means, whole, len(batch))
        self._apply(whole)
        loss = sum(grads[2] for grads in sums) / len(batch)
        return StepResult(loss, sum(grads[3] for grads in sums) / len(batch), grad_sqr, grad_var)

    def _gradient(self, samples: List[Sample]) -> Tuple[Matrix, Matrix, float, int]:
        """Sums over samples: gradient of both matrices, loss, right answers."""
        hidden_grad, output_grad = _zeros(HIDDEN, INPUTS), _zeros(CLASSES, HIDDEN)
        loss, right = 0.0, 0
        for inputs, label in samples:
            x = inputs + [1.0]
            h = [math.tanh(sum(map(mul, row, x))) for row in self.hidden] + [1.0]
            scores = [sum(map(mul, row, h)) for row in self.output]
            top = max(scores)
            weights = [math.exp(score - top) for score in scores]
            total = sum(weights)
            errors = [weight / total for weight in weights]
            loss -= math.log(max(errors[label], 1e-300))
            right += scores.index(top) == label
            errors[label] -= 1.0
            for grad, error in zip(output_grad, errors):
                for index, value in enumerate(h):
                    grad[index] += error * value
            for unit, grad in enumerate(hidden_grad):
                back = sum(error * row[unit] for error, row in zip(errors, self.output)) * (1.0 - h[unit] ** 2)
                for index, value in enumerate(x):
                    grad[index] += back * value
        return hidden_grad, output_grad, loss, right

    def _apply(self, gradient: List[float]) -> None:
        step = iter(gradient)
        for matrix, velocity in ((self.hidden, self._hidden_velocity), (self.output, self._output_velocity)):
            for row, speeds in zip(matrix, velocity):
                for index in range(len(row)):
                    speeds[index] = MOMENTUM * speeds[index] - LEARNING_RATE * next(step)
                    row[index] += speeds[index]


def _noise(means: Matrix, whole: List[float], batch_size: int) -> Tuple[float, float]:
    """Estimates from the gradient of the batch and of its halves: |G|^2, and the variance of one sample's gradient.

    Unbiased but for the cut at zero: a square and a variance below it would only be noise.
    """
    big = sum(map(mul, whole, whole))
    if len(means) < 2:
        return big, 0.0
    small = sum(sum(map(mul, mean, mean)) for mean in means) / len(means)
    half = batch_size / 2
    grad_sqr = (batch_size * big - half * small) / (batch_size - half)
    grad_var = (small - big) / (1 / half - 1 / batch_size)
    return max(0.0, grad_sqr), max(0.0, grad_var)


def _flat(gradient: Tuple[Matrix, Matrix, float, int], count: int) -> List[float]:
    return [value / count for matrix in gradient[:2] for row in matrix for value in row]


def _rows(start: random.Random, units: int, inputs: int) -> Matrix:
    scale = 1 / math.sqrt(inputs)
    return [[start.gauss(0, scale) for _ in range(inputs)] + [0.0] for _ in range(units)]


def _zeros(units: int, inputs: int) -> Matrix:
    return [[0.0] * (inputs + 1) for _ in range(units)]
