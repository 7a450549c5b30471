"""What measuring the gradient noise costs: the processor time of watched steps over that of others.

``python noise_cost.py BATCH PASSES ROUNDS`` prints a ratio for each round, of LeNet-5 on one thread.
"""

import sys
import time

import torch
from torch import nn

import switchyard
from switchyard import _noise

STEPS = 100  # twice as many as between two cuts


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10),
    )


class Training:
    def __init__(self, batch, passes, watched):
        self.job = switchyard.job(1, batch_size=-(-batch // passes))
        self.model = lenet()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.images, self.labels = torch.randn(batch, 1, 28, 28), torch.randint(10, (batch,))
        if watched:
            self.job.watch(self.model)
            while self.job._batch.noise.count < _noise.EVIDENCE:
                self.seconds(1)
        self.seconds(STEPS)

    def seconds(self, steps):
        began = time.process_time()
        for _ in self.job.steps(range(steps)):
            self.optimizer.zero_grad()
            for (images, labels), weight in self.job.accumulate((self.images, self.labels)):
                (weight * nn.functional.cross_entropy(self.model(images), labels)).backward()
            self.optimizer.step()
        return time.process_time() - began


def main():
    batch, passes, rounds = map(int, sys.argv[1:])
    torch.set_num_threads(1)
    plain, watched = Training(batch, passes, False), Training(batch, passes, True)
    for _ in range(rounds):
        print(watched.seconds(STEPS) / plain.seconds(STEPS))


if __name__ == "__main__":
    main()
