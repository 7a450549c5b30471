"""Trains a small convolutional network with DistributedDataParallel over NCCL, one process per GPU, and goes on from its
checkpoint on any number of them. The images are noise around ten shapes, made here."""

import os

import switchyard
import torch
import torch.distributed
from torch import nn

CHECKPOINT = "net.pt"


def network() -> nn.Module:
    layers, before = [], 3
    for width in (32, 64, 128):
        layers += [nn.Conv2d(before, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)]
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 10))


def main() -> None:
    torch.distributed.init_process_group("nccl")
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    local = int(os.environ.get("LOCAL_RANK", 0))
    device = torch.device("cuda", local)
    torch.cuda.set_device(device)
    with switchyard.job(100, 64) as job:
        torch.manual_seed(1)
        net = network().to(device)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
        saved = job.load(CHECKPOINT, lambda path: torch.load(path, map_location=device))
        if saved is not None:
            net.load_state_dict(saved["net"])
            optimizer.load_state_dict(saved["optimizer"])
        spread = nn.parallel.DistributedDataParallel(net, device_ids=[local])
        shapes = torch.randn(10, 3, 32, 32, device=device)
        for epoch in job.epochs():
            loss = torch.zeros((), device=device)
            for _ in range(40):
                labels = torch.randint(10, (64,), device=device)
                images = shapes[labels] + torch.randn(64, 3, 32, 32, device=device)
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(spread(images), labels)
                loss.backward()
                optimizer.step()
            job.report(loss=loss.item())
            if rank == 0:
                state = {"net": net.state_dict(), "optimizer": optimizer.state_dict()}
                job.save(lambda path: torch.save(state, path), CHECKPOINT)
                print("epoch %d world %d backend %s loss %.3f" % (epoch + 1, world, torch.distributed.get_backend(), loss.item()), flush=True)
            torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
