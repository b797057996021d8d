# A PyTorch program whose weights stay on the GPU, for ever: each round computes the same
# product from them and prints a checksum of all its bits.
import json
import os
import time

import torch


def event(name, **more):
    print(json.dumps({"time": time.time(), "event": name, "pid": os.getpid(), **more}), flush=True)


torch.manual_seed(1)
weights = torch.randn(12, 4096, 4096, device="cuda", dtype=torch.bfloat16)  # 384 MiB
x = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
task = 0
while True:
    event("launch", task=task)
    y = x
    for w in weights:
        y = torch.nn.functional.layer_norm(y @ w, (4096,))
    bits = y.view(torch.int16).to(torch.int64)
    factors = torch.arange(1, bits.numel() + 1, device="cuda").view_as(bits)
    event("verified", task=task, computed=True, checksum=format((bits * factors).sum().item() & (2**64 - 1), "016x"))
    task += 1
