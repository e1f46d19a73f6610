"""Learn initial weights with Accelerate, one process for each GPU.

Run ``accelerate launch --num_processes 2 docs/many_gpus/with_accelerate.py``, or the same by
``torchrun``. If it was cut off, the same command goes on after the last whole epoch.
"""

import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from step import IMAGES, Step, hand_on
from torch.utils.data import DataLoader

n_epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 100
checkpoints = Path("checkpoints")

order = DataLoaderConfiguration(use_seedable_sampler=True, data_seed=0)
accelerator = Accelerator(cpu=not torch.cuda.is_available(), dataloader_config=order)
torch.manual_seed(0)
step = Step()
optimizer = torch.optim.Adam(step.parameters(), 4e-3)
loader = DataLoader(IMAGES, batch_size=128, shuffle=True, drop_last=True)
# Wraps step in DistributedDataParallel, and not step.net: the loss is computed in step's forward.
wrapped, optimizer, loader = accelerator.prepare(step, optimizer, loader)
n_done = 0
if whole := sorted(checkpoints.glob("epoch_*")):
    accelerator.load_state(whole[-1])
    n_done = int(whole[-1].name.removeprefix("epoch_"))

for epoch in range(n_done, n_epochs):
    loader.set_epoch(epoch)
    step.seed(epoch, accelerator.process_index)
    for x in loader:
        loss = wrapped(x)
        optimizer.zero_grad()
        accelerator.backward(loss)  # averages gradients over ranks
        optimizer.step()
    accelerator.save_state(checkpoints / "part")
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:  # a kill leaves no checkpoint that is not whole
        (checkpoints / "part").rename(checkpoints / f"epoch_{epoch + 1:04d}")
    accelerator.wait_for_everyone()

wrapped = accelerator.free_memory(wrapped)
accelerator.end_training()
if accelerator.is_main_process:
    hand_on(step.net)
