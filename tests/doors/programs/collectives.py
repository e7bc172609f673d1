"""Two processes that train one model on cuda over Gloo or NCCL; each prints what it has of what they exchanged."""

import json
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import all_reduce


def main(rank: int, file: str, backend: str) -> None:
    dist.init_process_group(backend, rank=rank, world_size=2, init_method=f"file://{file}")
    x = torch.full((3,), rank + 1.0, device="cuda")
    every = [torch.empty(3, device="cuda") for _ in range(2)]
    dist.all_gather(every, x)
    summed = all_reduce(x, "sum", [0, 1]) + 0
    dist.all_reduce(x)
    parts = torch.empty(6, device="cuda")
    dist.all_gather_into_tensor(parts, x * (rank + 1))
    torch.manual_seed(rank)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1).cuda())
    model(every[rank][None]).sum().backward()
    weight = model.module.weight
    facts = [x.tolist(), [e[0].item() for e in every], summed.tolist(), parts[::3].tolist()]
    facts += [weight.grad.tolist(), str(summed.device)]
    dist.broadcast(x.mul_(rank), 1)
    for speaker in range(2):  # one after the other: both write into one stream
        if rank == speaker:
            print(json.dumps([*facts, x.tolist()]), flush=True)
        dist.barrier()
    dist.destroy_process_group()


def share(tensor: torch.Tensor) -> None:
    raise AssertionError("a tensor came")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        other = os.fork()
        main(int(not other), *sys.argv[1:])
        sys.exit(os.waitpid(other, 0)[1] if other else 0)
    else:
        context = torch.multiprocessing.get_context("spawn")
        context.Process(target=share, args=(torch.ones(2, device="cuda"),)).start()
