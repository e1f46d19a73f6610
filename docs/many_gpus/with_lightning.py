"""Learn initial weights with Lightning, whose Trainer chooses devices, precision and strategy.

Run ``torchrun --nproc-per-node 2 docs/many_gpus/with_lightning.py``, or without torchrun set
``devices``. If it was cut off, the same command goes on after the last whole epoch.
"""

import os
import sys

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from step import IMAGES, Step, hand_on
from torch.utils.data import DataLoader

n_epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 100


class Learn(L.LightningModule):
    """Lightning wraps it in DistributedDataParallel, whose forward is then training_step."""

    def __init__(self):
        super().__init__()
        self.step = Step()

    def on_train_epoch_start(self):
        """Each rank has draws of its own."""
        self.step.seed(self.current_epoch, self.global_rank)

    def training_step(self, x):
        """The loss of a mini-batch."""
        return self.step(x)

    def configure_optimizers(self):
        """The optimiser."""
        return torch.optim.Adam(self.parameters(), 4e-3)


L.seed_everything(0, verbose=False)
learn = Learn()
loader = DataLoader(IMAGES, batch_size=128, shuffle=True, drop_last=True)
trainer = L.Trainer(
    max_epochs=n_epochs,
    accelerator="auto",
    devices=int(os.environ.get("LOCAL_WORLD_SIZE", 1)),
    strategy="ddp",
    callbacks=ModelCheckpoint("checkpoints", save_last=True),
    logger=False,
    enable_model_summary=False,
    enable_progress_bar=False,
)
trainer.fit(learn, loader, ckpt_path="last")
if trainer.is_global_zero:
    hand_on(learn.step.net)
