"""The PyTorch Lightning example of the guide to kubernetesdlprofile, in a form that runs.

Corrected against the guide's listing:
- the methods of TestNN are indented into the class (as printed they were functions beside it);
- the instance is called net: as nn it hid the module torch.nn;
- the loss is cross entropy: the network returns scores, not logarithms of probabilities;
- the data is downloaded once, by hand, into /data/cifar or the folder that SWITCHYARD_DATASETS_DIR stands for;
- shuffling is seeded, so that a restart splits the data as before;
- the accelerator follows what there is: the same script runs where there is no CUDA;
- this file's own name must not hide a package: its folder is taken off the import path.
The order of the calls is the guide's: start_epoch, then measure after each step, then end_epoch.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or ".") != HERE]

import pytorch_lightning as pl  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import torchvision.models as models  # noqa: E402
from kubernetesdlprofile import kubeprofiler  # noqa: E402
from torch.utils.data import DataLoader, random_split  # noqa: E402
from torchvision import transforms  # noqa: E402
from torchvision.datasets import CIFAR10  # noqa: E402


class TestNN(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = models.mobilenet_v2(num_classes=10)
        self.prof = kubeprofiler.KubeProfiler()

    def forward(self, x):
        return self.model(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self.model(x), y)
        self.log("train_loss", loss)
        self.prof.measure()
        return loss

    def on_train_epoch_start(self):
        self.prof.start_epoch()

    def on_train_epoch_end(self):
        self.prof.end_epoch()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    data = os.path.join(os.environ.get("SWITCHYARD_DATASETS_DIR", "/data"), "cifar")
    dataset = CIFAR10(data, transform=transforms.ToTensor())
    net = TestNN()
    sizes = [net.prof.TRAINING_SET_SIZE, len(dataset) - net.prof.TRAINING_SET_SIZE]
    train, _ = random_split(dataset, sizes, generator=torch.Generator().manual_seed(1))
    loader = DataLoader(
        train, batch_size=net.prof.BATCH_SIZE, shuffle=True, num_workers=4, persistent_workers=True, drop_last=True
    )
    trainer = pl.Trainer(
        accelerator="gpu" if torch.cuda.is_available() else "cpu",
        devices=net.prof.NUM_GPUS,
        num_nodes=net.prof.NUM_NODES,
        strategy="ddp",
        max_epochs=net.prof.EPOCHS,
        default_root_dir=net.prof.root_dir,
    )
    trainer.fit(net, loader, ckpt_path=net.prof.ckpt_path if net.prof.RESTARTED else None)


if __name__ == "__main__":
    main()
