"""Trains a small transformer for argv[1] seconds, and prints for each step when it
began (seconds of the clock) and how long it took."""
import sys
import time

import torch

torch.manual_seed(1)
layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True)
model = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).cuda().bfloat16()
optimiser = torch.optim.AdamW(model.parameters())
x = torch.randn(16, 512, 1024, device="cuda", dtype=torch.bfloat16)


def step():
    began, t = time.time(), time.perf_counter()
    optimiser.zero_grad()
    model(x).square().mean().backward()
    optimiser.step()
    torch.cuda.synchronize()
    return began, time.perf_counter() - t


for _ in range(20):
    step()
print("ready", flush=True)
times, end = [], time.time() + float(sys.argv[1])
while time.time() < end:
    times.append(step())
for began, took in times:
    print(f"{began:.6f} {took:.9f}")
