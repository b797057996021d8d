"""Two ranks that add tensors by NCCL, without end: `ranks.py processes FILE`, a process for each GPU, or `ranks.py one
FILE`, one process on both. Each step multiplies matrices on each GPU, adds a tensor over both of them, and compares
every element with what the sum must be. FILE holds three numbers that others map: steps done, wrong results, and
whether to end. NVLink multicast stays off."""
import mmap
import os
import struct
import sys

os.environ.update(NCCL_NVLS_ENABLE="0", TORCH_SYMM_MEM_DISABLE_MULTICAST="1")
os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")

import torch  # noqa: E402

GPUS = 2
ELEMENTS = 4 << 20


class Told:
    """The file: steps, wrong, stop."""

    def __init__(self, path):
        self.file = open(path, "r+b")
        self.map = mmap.mmap(self.file.fileno(), 24)

    def count(self, at):
        struct.pack_into("<Q", self.map, 8 * at, struct.unpack_from("<Q", self.map, 8 * at)[0] + 1)

    def stop(self):
        return struct.unpack_from("<Q", self.map, 16)[0] != 0


def term(rank, step):
    return float(rank + 1 + step % 7)


def check(told, tensor, step):
    if not bool((tensor == sum(term(r, step) for r in range(GPUS))).all().item()):
        told.count(1)
        sys.exit(f"a wrong sum in step {step}")


def rank_of(rank, path):
    """One process of several."""
    import torch.distributed as dist

    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{path}.store", rank=rank, world_size=GPUS)
    told = Told(path)
    a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    tensor = torch.empty(ELEMENTS, device="cuda")
    stop = torch.zeros(1, device="cuda")
    step = 0
    while not bool(stop.item()):
        (a @ a).sum()
        tensor.fill_(term(rank, step))
        dist.all_reduce(tensor)
        check(told, tensor, step)
        stop.fill_(1.0 if rank == 0 and told.stop() else 0.0)
        dist.all_reduce(stop)  # all of them end after the same step
        if rank == 0:
            told.count(0)
        step += 1
    dist.destroy_process_group()


def one(path):
    """One process on all GPUs."""
    from torch.cuda import nccl

    told = Told(path)
    a = [torch.randn(4096, 4096, device=g, dtype=torch.bfloat16) for g in range(GPUS)]
    tensors = [torch.empty(ELEMENTS, device=g) for g in range(GPUS)]
    step = 0
    while not told.stop():
        for rank in range(GPUS):
            (a[rank] @ a[rank]).sum()
            tensors[rank].fill_(term(rank, step))
        nccl.all_reduce(tensors)
        for tensor in tensors:
            check(told, tensor, step)
        told.count(0)
        step += 1


if __name__ == "__main__":
    if torch.cuda.device_count() < GPUS:
        sys.exit(f"{GPUS} GPUs are needed, and there are {torch.cuda.device_count()}")
    if sys.argv[1] == "one":
        one(sys.argv[2])
    else:
        torch.multiprocessing.spawn(rank_of, args=(sys.argv[2],), nprocs=GPUS)
