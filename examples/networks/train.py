"""Trains small versions of the networks of published workloads on made data: ``python train.py NETWORK``.

The layers, the losses and the kind of data are those of the published networks; sizes are such that an epoch takes
seconds on a processor. Without a scheduler it trains alone. Stopped at any epoch's end, it goes on from its checkpoint.
"""

import os
import sys
from typing import Callable, NamedTuple, Tuple

import switchyard
import torch
from torch import nn
from torch.nn import functional as F

Data = Tuple[torch.Tensor, ...]


class Network(NamedTuple):
    model: nn.Module
    rate: float
    data: Callable[[int], Data]  # makes so many samples
    loss: Callable[[nn.Module, Data], torch.Tensor]
    score: Callable[[nn.Module, Data], torch.Tensor]  # accuracy, from 0 to 1


# ResNet (He et al., 2016): residual blocks on images of ten classes.


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.path(x) + self.shortcut(x))


def resnet() -> Network:
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1), Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip
    shapes = torch.randn(10, 3, 8, 8)

    def data(count: int) -> Data:
        labels = torch.randint(10, (count,))
        return F.interpolate(shapes[labels], size=32) + torch.randn(count, 3, 32, 32), labels

    def loss(model: nn.Module, batch: Data) -> torch.Tensor:
        return F.cross_entropy(model(batch[0]), batch[1])

    return Network(model, 0.05, data, loss, lambda model, batch: (model(batch[0]).argmax(1) == batch[1]).float().mean())


# BERT (Devlin et al., 2019): an encoder that names masked words. Each word follows from the one before it.


class Bert(nn.Module):
    WORDS, LENGTH, WIDTH, MASK = 24, 16, 64, 0

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(self.WORDS, self.WIDTH), nn.Embedding(self.LENGTH, self.WIDTH)
        layer = nn.TransformerEncoderLayer(self.WIDTH, 4, 4 * self.WIDTH, 0.1, "gelu", batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(self.WIDTH, self.WORDS)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.words(text) + self.places(torch.arange(text.shape[1], device=text.device))))


def bert() -> Network:
    follows = 1 + torch.randperm(Bert.WORDS - 1)

    def data(count: int) -> Data:
        words = [torch.randint(1, Bert.WORDS, (count,))]
        while len(words) < Bert.LENGTH:
            words.append(follows[words[-1] - 1])
        text = torch.stack(words, 1)
        return torch.where(torch.rand(text.shape) < 0.15, torch.tensor(Bert.MASK), text), text

    def masked(model: nn.Module, batch: Data) -> Data:
        hidden = batch[0] == Bert.MASK
        return model(batch[0])[hidden], batch[1][hidden]

    def score(model: nn.Module, batch: Data) -> torch.Tensor:
        found, words = masked(model, batch)
        return (found.argmax(1) == words).float().mean()

    return Network(Bert(), 0.1, data, lambda model, batch: F.cross_entropy(*masked(model, batch)), score)


# YOLO (Redmon et al., 2016): each cell of a grid says whether an object's centre is there, its box and its class.


def yolo() -> Network:
    grid, classes, side = 6, 3, 48
    layers, width = [], 3
    for outputs in (16, 32, 64):
        layers += [nn.Conv2d(width, outputs, 3, 2, 1), nn.BatchNorm2d(outputs), nn.LeakyReLU(0.1)]
        width = outputs
    model = nn.Sequential(*layers, nn.Conv2d(width, 5 + classes, 1))

    def data(count: int) -> Data:
        images, wanted = torch.randn(count, 3, side, side) * 0.3, torch.zeros(count, 5 + classes, grid, grid)
        for i in range(count):
            kind, size = int(torch.randint(classes, ())), int(torch.randint(8, 17, ()))
            left, top = (int(torch.randint(side - size, ())) for _ in range(2))
            images[i, kind, top : top + size, left : left + size] += 2
            across, down = (left + size / 2) / side * grid, (top + size / 2) / side * grid
            cell = torch.tensor([1, across % 1, down % 1, size / side, size / side])
            wanted[i, :5, int(down), int(across)], wanted[i, 5 + kind, int(down), int(across)] = cell, 1
        return images, wanted

    def loss(model: nn.Module, batch: Data) -> torch.Tensor:
        found, wanted = model(batch[0]), batch[1]
        there = wanted[:, :1]
        boxes = (there * (found[:, 1:5].sigmoid() - wanted[:, 1:5]) ** 2).sum()
        kinds = (there[:, 0] * F.cross_entropy(found[:, 5:], wanted[:, 5:].argmax(1), reduction="none")).sum()
        return F.binary_cross_entropy_with_logits(found[:, :1], there) + (5 * boxes + kinds) / len(wanted)

    def score(model: nn.Module, batch: Data) -> torch.Tensor:
        found = model(batch[0])[:, 0].flatten(1).argmax(1)
        return (found == batch[1][:, 0].flatten(1).argmax(1)).float().mean()

    return Network(model, 0.02, data, loss, score)


# DeepSpeech 2 (Amodei et al., 2016): convolutions over a spectrogram, a recurrent network both ways, CTC.


class DeepSpeech(nn.Module):
    LETTERS, BANDS, FRAMES, WIDTH = 8, 20, 48, 64

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Sequential(nn.Conv2d(1, 8, 5, (2, 2), 2), nn.BatchNorm2d(8), nn.Hardtanh(0, 20))
        self.recurrent = nn.GRU(8 * self.BANDS // 2, self.WIDTH, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * self.WIDTH, 1 + self.LETTERS)

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        frames = self.convolution(sound.unsqueeze(1)).flatten(1, 2).transpose(1, 2)
        return self.head(self.recurrent(frames)[0]).log_softmax(2)


def deepspeech() -> Network:
    letters, spoken = 6, DeepSpeech.FRAMES // 6
    sounds = torch.randn(DeepSpeech.LETTERS, DeepSpeech.BANDS)

    def data(count: int) -> Data:
        said = torch.randint(1, DeepSpeech.LETTERS, (count, letters)).cumsum(1) % DeepSpeech.LETTERS  # none twice in a row
        sound = sounds[said].repeat_interleave(spoken, 1).transpose(1, 2)
        return sound + 0.3 * torch.randn(sound.shape), 1 + said

    def loss(model: nn.Module, batch: Data) -> torch.Tensor:
        heard = model(batch[0]).transpose(0, 1)
        frames, length = (torch.full((len(batch[1]),), n, dtype=torch.long) for n in (heard.shape[0], letters))
        return F.ctc_loss(heard, batch[1], frames, length)

    def score(model: nn.Module, batch: Data) -> torch.Tensor:
        best, right = model(batch[0]).argmax(2), 0
        for heard, said in zip(best, batch[1]):
            heard = torch.unique_consecutive(heard)
            right += heard[heard > 0].tolist() == said.tolist()
        return torch.tensor(right / len(best))

    return Network(DeepSpeech(), 0.05, data, loss, score)


# NCF (He et al., 2017): embeddings of people and things, multiplied and through a perceptron.


class NCF(nn.Module):
    PEOPLE, THINGS, WIDTH = 20, 30, 16

    def __init__(self) -> None:
        super().__init__()
        self.people, self.things = nn.Embedding(self.PEOPLE, 2 * self.WIDTH), nn.Embedding(self.THINGS, 2 * self.WIDTH)
        self.perceptron = nn.Sequential(nn.Linear(2 * self.WIDTH, self.WIDTH), nn.ReLU())
        self.head = nn.Linear(2 * self.WIDTH, 1)

    def forward(self, pairs: torch.Tensor) -> torch.Tensor:
        person, thing = self.people(pairs[:, 0]).chunk(2, 1), self.things(pairs[:, 1]).chunk(2, 1)
        deep = self.perceptron(torch.cat([person[1], thing[1]], 1))
        return self.head(torch.cat([person[0] * thing[0], deep], 1)).squeeze(1)


def ncf() -> Network:
    people, things = torch.randn(NCF.PEOPLE, 3), torch.randn(NCF.THINGS, 3)

    def data(count: int) -> Data:
        pairs = torch.stack([torch.randint(NCF.PEOPLE, (count,)), torch.randint(NCF.THINGS, (count,))], 1)
        return pairs, ((people[pairs[:, 0]] * things[pairs[:, 1]]).sum(1) > 0).float()

    def loss(model: nn.Module, batch: Data) -> torch.Tensor:
        return F.binary_cross_entropy_with_logits(model(batch[0]), batch[1])

    return Network(NCF(), 0.5, data, loss, lambda model, batch: ((model(batch[0]) > 0) == (batch[1] > 0)).float().mean())


NETWORKS = {"resnet": resnet, "bert": bert, "yolo": yolo, "deepspeech": deepspeech, "ncf": ncf}
EPOCHS, BATCH_SIZE, TRAINING_SET_SIZE, HELD_OUT = 5, 32, 1024, 256


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1] not in NETWORKS:
        sys.exit("usage: train.py %s" % "|".join(NETWORKS))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    with switchyard.job(EPOCHS, BATCH_SIZE) as job:
        torch.manual_seed(1)
        network = NETWORKS[sys.argv[1]]()
        samples = [each.to(device) for each in network.data(job.training_set_size or TRAINING_SET_SIZE)]
        held_out = tuple(each.to(device) for each in network.data(HELD_OUT))
        model, file = network.model.to(device), sys.argv[1] + ".pt"
        optimizer = torch.optim.SGD(model.parameters(), lr=network.rate, momentum=0.9)
        saved = job.load(file, torch.load)
        if saved is not None:
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
        job.watch(model)
        for epoch in job.epochs():
            model.train()
            for batch in job.steps(map(torch.tensor, job.sampler(len(samples[0])))):
                optimizer.zero_grad()
                total = 0.0
                for part, weight in job.accumulate(batch):
                    share = weight * network.loss(model, tuple(each[part] for each in samples))
                    share.backward()
                    total += share.item()
                nn.utils.clip_grad_norm_(model.parameters(), 5)
                optimizer.param_groups[0]["lr"] = network.rate * job.lr_scale()
                optimizer.step()
                job.report(loss=total)
            model.eval()
            with torch.no_grad():
                right = network.score(model, held_out).item()
            job.report(accuracy=right)
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            job.save(lambda path: torch.save(state, path), file)  # noqa: B023
            print("epoch %d accuracy %.3f" % (epoch + 1, right), flush=True)


if __name__ == "__main__":
    main()
