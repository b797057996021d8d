"""Steps of small kernels (bound by launching) and of large ones, timed from inside."""
import json
import sys
import time

import torch

rounds = int(sys.argv[1])
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


for name, step, launches in (("small", small, 1000), ("large", large, 40)):
    for _ in range(50):
        step()
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        step()
        times.append(time.perf_counter() - began)
    print(json.dumps({"loop": name, "launches": launches, "steps": times}), flush=True)
