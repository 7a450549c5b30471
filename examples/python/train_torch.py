"""Trains LeNet-5 on generated digits with PyTorch, on a GPU where there is one. Without a scheduler: ``python train_torch.py``.

Sized by BATCH_SIZE, TRAINING_SET_SIZE and EPOCHS_TO_BE_DONE; the learning rate is the first argument. Stopped at any
epoch's end, it goes on from its last checkpoint.
"""

import os
import sys

import switchyard
import torch
from torch import nn

CHECKPOINT = "lenet.pt"
EPOCHS = 5
TRAINING_SET_SIZE = 2000
BATCH_SIZE = 64
HELD_OUT = 1000
CLASSES = 10
SIDE = 28
NOISE = 1.6
SHIFT = 3


def lenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.Tanh(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, CLASSES),
    )


def digits(count: int, seed: int):
    """Images of ten shapes, the same for every seed, each shifted a little and covered with noise."""
    shapes = torch.Generator().manual_seed(0)
    coarse = torch.randn(CLASSES, 1, 7, 7, generator=shapes)
    whole = nn.functional.interpolate(coarse, size=SIDE, mode="bilinear", align_corners=False)
    draws = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=draws)
    shifts = torch.randint(-SHIFT, SHIFT + 1, (count, 2), generator=draws)
    images = torch.stack([torch.roll(whole[label], tuple(shift.tolist()), (1, 2)) for label, shift in zip(labels, shifts)])
    return images + NOISE * torch.randn(images.shape, generator=draws), labels


def accuracy(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    with torch.no_grad():
        return (model(images).argmax(1) == labels).float().mean().item()


def main() -> None:
    rate = float(sys.argv[1]) if len(sys.argv) > 1 else 0.05
    device = "cuda" if torch.cuda.is_available() else "cpu"
    # All processors that it may use: left to itself, PyTorch takes one thread for each physical core.
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    with switchyard.job(EPOCHS, BATCH_SIZE) as job:
        torch.manual_seed(1)
        model = lenet().to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
        saved = job.load(CHECKPOINT, torch.load)
        if saved is not None:
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
        images, labels = (each.to(device) for each in digits(job.training_set_size or TRAINING_SET_SIZE, 1))
        held_out = [each.to(device) for each in digits(HELD_OUT, 2)]
        job.watch(model)

        def state() -> dict:
            return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

        for epoch in job.epochs():
            for batch in job.steps(map(torch.tensor, job.sampler(len(labels)))):
                optimizer.zero_grad()
                loss = 0.0
                for part, weight in job.accumulate(batch):
                    share = weight * nn.functional.cross_entropy(model(images[part]), labels[part])
                    share.backward()
                    loss += share.detach()
                optimizer.param_groups[0]["lr"] = rate * job.lr_scale()
                optimizer.step()
                job.report(loss=loss)
                if job.should_save():
                    job.save(lambda path: torch.save(state(), path), CHECKPOINT)
            right = accuracy(model, *held_out)
            job.report(accuracy=right)
            job.save(lambda path: torch.save(state(), path), CHECKPOINT)
            print("epoch %d accuracy %.3f" % (epoch + 1, right), flush=True)


if __name__ == "__main__":
    main()
