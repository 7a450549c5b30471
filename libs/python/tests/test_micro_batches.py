"""Loops that step once for each batch, trained on parts of a batch: the weights must be those of whole batches."""

import contextlib
import unittest
from unittest import mock

import switchyard
from kubernetesdlprofile import kubeprofiler
from tests import jobapi


class Rows:
    """Samples of one number each, with as much of a tensor as the library looks at."""

    def __init__(self, values):
        self.values = list(values)
        self.shape = (len(self.values), 1)

    def __getitem__(self, where):
        return Rows(self.values[where])


class Grad:
    def __init__(self, value):
        self.value = value

    def mul_(self, factor):
        self.value *= factor


class Weight:
    def __init__(self):
        self.value, self.grad = 1.0, None


class SGD:
    """An optimizer with a schedule of its own: each step halves the rate, so that a step too many shows."""

    def __init__(self, weight):
        self.param_groups = [{"params": [weight]}]
        self.weight, self.rate, self.steps = weight, 0.1, 0

    def zero_grad(self):
        self.weight.grad = None

    def step(self):
        self.weight.value -= self.rate * self.weight.grad.value
        self.rate, self.steps = self.rate / 2, self.steps + 1


def backward(weight, rows):
    """The gradient of the mean of (weight * x)^2, added to what is there."""
    own = sum(2 * weight.value * x * x for x in rows.values) / len(rows.values)
    if weight.grad is None:
        weight.grad = Grad(0.0)
    weight.grad.value += own


def train(batches, weight, optimizer, clear_first=True, after=lambda: None):
    """A loop as people write it; some clear the gradients first, some last."""
    sizes = []
    for rows in batches:
        sizes.append(rows.shape[0])
        if clear_first:
            optimizer.zero_grad()
        backward(weight, rows)
        optimizer.step()
        if not clear_first:
            optimizer.zero_grad()
        after()
    return sizes


BATCHES = [Rows([1, 2, 3, 4, 5, 6, 7]), Rows([2, 1, 2]), Rows([5])]


class AStockLoop(unittest.TestCase):
    def run_with(self, micro_batch, clear_first=True):
        weight = Weight()
        optimizer = SGD(weight)
        with contextlib.ExitStack() as stack:
            api = stack.enter_context(jobapi.serve())
            api.control = {"stop": False, "micro_batch": micro_batch, "accumulation": 3, "generation": 4}
            changes = {"SWITCHYARD_JOB_API": api.url, "BATCH_SIZE": 7, "EPOCHS_TO_BE_DONE": 1, "NUM_GPUS": 1, "NUM_NODES": 1}
            stack.enter_context(jobapi.environment(**changes))
            sizes = []
            with switchyard.job() as job:
                for _ in job.epochs():
                    sizes += train(job.micro_batches(job.steps(BATCHES), optimizer), weight, optimizer, clear_first)
        self.assertNotIn("step", vars(optimizer))
        return sizes, weight.value, optimizer.steps, api.bodies("epochs")

    def test_parts_give_the_weights_of_whole_batches(self):
        whole = self.run_with(7)
        self.assertEqual(whole[0], [7, 3, 1])
        for clear_first in (True, False):
            sizes, value, steps, epochs = self.run_with(3, clear_first)
            self.assertEqual(sizes, [3, 3, 1, 3, 1])
            self.assertAlmostEqual(value, whole[1], places=12)
            self.assertEqual((steps, epochs[0]["steps"]), (3, 3))
            self.assertEqual((epochs[0]["micro_batch"], epochs[0]["generation"]), (3, 4))


class AScriptOfKubeProfiler(unittest.TestCase):
    def test_it_follows_and_counts_whole_steps(self):
        weight = Weight()
        optimizer = SGD(weight)
        with contextlib.ExitStack() as stack:
            api = stack.enter_context(jobapi.serve())
            api.wish = {"micro_batch": 2, "accumulation": 4, "generation": 9}
            changes = {
                "SWITCHYARD_JOB_MANAGER": "127.0.0.1:%d" % api.port, "BATCH_SIZE": 7, "TRAINING_SET_SIZE": 21, "NUM_GPUS": 1,
                "NUM_NODES": 1, "EPOCHS_TO_BE_DONE": 2, "EPOCHS_DONE": 0, "HEARTBEAT_FREQ": 1,
            }
            stack.enter_context(jobapi.environment(**changes))
            profiler = kubeprofiler.KubeProfiler()
            sizes = []
            for _ in range(2):
                profiler.start_epoch()
                sizes.append(train(profiler.micro_batches(BATCHES, optimizer), weight, optimizer, after=profiler.measure))
                profiler.end_epoch()
        plain = Weight()
        other = SGD(plain)
        train(BATCHES, plain, other)
        train(BATCHES, plain, other)
        self.assertAlmostEqual(weight.value, plain.value, places=12)
        self.assertEqual(optimizer.steps, 6)
        # The answer to the first heartbeat asks for passes of two samples.
        self.assertEqual(sizes[1], [2, 2, 2, 1, 2, 1, 1])
        beats = api.bodies("steps")
        self.assertEqual((beats[0]["micro_batch"], beats[0]["generation"]), (7, 0))
        self.assertEqual((beats[-1]["micro_batch"], beats[-1]["generation"], beats[-1]["steps"]), (2, 9, 1))
        self.assertEqual(profiler.iterations, 5)  # the first one only starts the clock
        self.assertEqual([body["done"] for body in api.bodies("job-1") if "done" in (body or {})], [1, 2])

    def test_without_it_nothing_changes(self):
        with mock.patch.object(kubeprofiler, "_Tuned", side_effect=AssertionError("tuned")), jobapi.serve() as api:
            with jobapi.environment(SWITCHYARD_JOB_MANAGER="127.0.0.1:%d" % api.port):
                profiler = kubeprofiler.KubeProfiler()
                profiler.start_epoch()
                profiler.measure()
                profiler.end_epoch()
        self.assertEqual(api.bodies("steps"), [])
