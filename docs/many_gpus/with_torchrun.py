"""Learn initial weights with DistributedDataParallel, one process for each GPU.

Run ``torchrun --nproc-per-node 2 docs/many_gpus/with_torchrun.py`` (without a GPU processes share
the CPU). If it was cut off, the same command goes on after the last whole epoch.
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from step import IMAGES, Step, hand_on
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

n_epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 100
checkpoint = Path("checkpoint.pt")

dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
rank, device = dist.get_rank(), torch.device("cpu")
if torch.cuda.is_available():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)

torch.manual_seed(0)
step = Step().to(device)
optimizer = torch.optim.Adam(step.parameters(), 4e-3)
n_done = 0
if checkpoint.exists():  # each process reads the same file
    state = torch.load(checkpoint, map_location=device)
    step.load_state_dict(state["step"])
    optimizer.load_state_dict(state["optimizer"])
    n_done = state["n_done"]
ddp = DistributedDataParallel(step)  # not of step.net: the loss is computed in step's forward

sampler = DistributedSampler(IMAGES, drop_last=True)  # other rows for each rank
loader = DataLoader(IMAGES, batch_size=128, sampler=sampler, drop_last=True)
for epoch in range(n_done, n_epochs):
    sampler.set_epoch(epoch)
    step.seed(epoch, rank)
    for x in loader:
        loss = ddp(x.to(device))
        optimizer.zero_grad()
        loss.backward()  # averages gradients over ranks
        optimizer.step()
    if rank == 0:
        if (epoch + 1) % 10 == 0:
            print(f"epoch {epoch + 1} of {n_epochs}: loss {loss.item():.3f}", flush=True)
        state = {"step": step.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state | {"n_done": epoch + 1}, "part.pt")
        os.replace("part.pt", checkpoint)  # a kill leaves the old file or the new one

del ddp  # freeing it after the process group may deadlock (PyTorch 2.13)
dist.destroy_process_group()
if rank == 0:
    hand_on(step.net)
