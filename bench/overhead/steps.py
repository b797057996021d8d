"""A step of small kernels (bound by launching) and one of large ones."""
import torch

torch.cuda.init()
x = torch.zeros(16, device="cuda")
a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)


def small():
    for _ in range(1000):
        x.add_(1.0)
    torch.cuda.synchronize()


def large():
    for _ in range(40):
        torch.mm(a, a)
    torch.cuda.synchronize()


steps = {"small": {"take": small, "launches": 1000}, "large": {"take": large, "launches": 40}}
