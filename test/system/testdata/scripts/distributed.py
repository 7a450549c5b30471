"""Trains with torch.distributed as PyTorch's tutorials do."""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

model = torch.nn.Linear(4, 1)
if "alone" not in sys.argv:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(10):
    loss = model(torch.randn(8, 4)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
if "alone" in sys.argv or dist.get_rank() == 0:
    print("trained on", 1 if "alone" in sys.argv else dist.get_world_size())
