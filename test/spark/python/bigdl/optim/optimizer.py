"""The stand-in of bigdl.optim.optimizer: epochs take their measured time, and write BigDL's log and checkpoints."""

import csv
import json
import math
import os
import time

from pyspark import SparkContext, log


class OptimMethod:
    state = {"epoch": 1, "neval": 1}
    learningrate = 0.01

    @staticmethod
    def load(path, bigdl_type="float"):
        method = OptimMethod()
        with open(path) as file:
            method.__dict__ = json.load(file)
        return method

    def save(self, path):
        with open(path, "w") as file:
            json.dump(self.__dict__, file)


class SGD(OptimMethod):
    def __init__(self, learningrate=1e-3, learningrate_decay=0.0, **_other):
        self.learningrate, self.state = learningrate, {"epoch": 1, "neval": 1}


class MaxEpoch:
    def __init__(self, max_epoch):
        self.max_epoch = int(max_epoch)


class EveryEpoch:
    pass


class Top1Accuracy:
    pass


RECORDS = 60000


class Optimizer:
    def __init__(self, model, training_rdd, criterion, end_trigger, batch_size, optim_method=None, bigdl_type="float"):
        self.model, self.end, self.batch, self.method = model, end_trigger, batch_size, optim_method or SGD()
        self.folder, self.begun = None, time.time()

    def set_validation(self, batch_size, val_rdd, trigger, val_method=None):
        pass

    def set_checkpoint(self, checkpoint_trigger, checkpoint_path, isOverWrite=True):
        self.folder = os.path.join(checkpoint_path, time.strftime("%Y%m%d_%H%M%S"))
        os.makedirs(self.folder, exist_ok=True)

    def optimize(self):
        self.begun, state = time.time(), self.method.state
        while state["epoch"] <= self.end.max_epoch:
            self.epoch(state)
        return self.model

    def epoch(self, state):
        steps = math.ceil(RECORDS / self.batch)
        time.sleep(seconds(SparkContext.current, self.batch))
        state["neval"] += steps
        wall = time.time() - self.begun
        best = 1 - abs(math.log10(self.method.learningrate) + 2) / 4  # at a rate of 0.01
        self.model.learnt += (best - self.model.learnt) / 3
        where = "[Epoch %d %d/%d][Iteration %d][Wall Clock %.9fs] " % (state["epoch"], steps * self.batch, RECORDS, state["neval"] - 1, wall)
        log("DistriOptimizer$:408 - %sTrained %d records in %.9f seconds. Throughput is %.5f records/second. Loss is %.7f. Sequential's hyper parameters: none."
            % (where, self.batch, wall / steps, RECORDS / wall, 2.3 * (1 - self.model.learnt)))  # fmt: skip
        log("DistriOptimizer$:452 - %sEpoch finished. Wall clock time is %.6f ms" % (where, 1000 * wall))
        log("DistriOptimizer$:181 - %sTop1Accuracy is Accuracy(correct: %d, count: 10000, accuracy: %.4f)"
            % (where, 10000 * self.model.learnt, self.model.learnt))  # fmt: skip
        state["epoch"] += 1
        if self.folder:
            self.model.save(os.path.join(self.folder, "model.%d" % state["neval"]))
            log("DistriOptimizer$:221 - [Wall Clock %.9fs] Save model to %s" % (wall, self.folder))
            self.method.save(os.path.join(self.folder, "optimMethod-Sequential.%d" % state["neval"]))
            log("DistriOptimizer$:226 - [Wall Clock %.9fs] Save optimMethod com.intel.analytics.bigdl.optim.SGD to %s" % (wall, self.folder))


def seconds(context, batch):
    """The length of an epoch: that of the nearest measured setting, or by a formula."""
    cores, memory, scale = context.total(), context.memory() / 1024, float(context.settings.get("standin.scale", "0.01"))
    grid = context.settings.get("standin.grid")
    if not grid:
        return scale * (20 + 2000 / batch + 400 / cores + 0.2 * cores * 1000 / batch)
    model, _, dataset = context.settings.get("standin.workload", "lenet/mnist").partition("/")
    with open(grid) as file:
        rows = [row for row in csv.DictReader(file) if (row["model"], row["dataset"]) == (model, dataset)]
    near = min(rows, key=lambda row: sum(
        abs(math.log(float(row[name]) / value)) for name, value in (("batch", 100 * batch), ("cores", cores), ("memory_gb", memory))
    ) if row["batch"] != str(batch) else abs(math.log(float(row["cores"]) / cores)) + abs(math.log(float(row["memory_gb"]) / memory)))  # fmt: skip
    return scale * float(near["epoch_s_mean"])
