"""Takes steps that fill the GPU, each a chain of LAXITY_KERNELS bf16 multiplications, and rests when it is told to. A line
for each step: when it began and when its result was on the host, Unix seconds."""
import json
import os
import time

import torch

from begin import begin, rest

begin()
width, kernels = 8192, int(os.environ["LAXITY_KERNELS"])
weight = torch.randn(width, width, device="cuda", dtype=torch.bfloat16) / width**0.5
batch = torch.randn(width, width, device="cuda", dtype=torch.bfloat16)
epoch = time.time() - time.perf_counter()
while True:
    rest()
    began = time.perf_counter()
    x = batch
    for _ in range(kernels):
        x = x @ weight
    x[0, 0].item()
    print(json.dumps({"began": epoch + began, "ended": epoch + time.perf_counter()}), flush=True)
