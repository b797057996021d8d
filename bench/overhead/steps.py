"""A step of small kernels (bound by launching) and one of large ones; and one of few launches at a time."""
import torch

torch.cuda.init()
x = torch.zeros(16, device="cuda")
a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)


def launches(count):
    def take():
        for _ in range(count):
            x.add_(1.0)
        torch.cuda.synchronize()
    return {"take": take, "launches": count}


def large():
    for _ in range(40):
        torch.mm(a, a)
    torch.cuda.synchronize()


# Pauses are longer than the gap that ends a busy interval. The second phase launches less than 2,000 times a second.
phases = [
    {"rounds": 40, "pause": 0.1, "steps": {"small": launches(1000), "large": {"take": large, "launches": 40}}},
    {"rounds": 1, "pause": 0.06, "steps": {"paced": launches(100)}},
]
