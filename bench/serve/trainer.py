"""Trains a model of eight large layers, and so fills the GPU. A line for each step: when it began and when its loss was
on the host, Unix seconds."""
import json
import time

import torch

from begin import begin
from stream import choose

begin()
choose()
torch.set_default_dtype(torch.bfloat16)
torch.set_default_device("cuda")
model = torch.nn.Sequential(*(torch.nn.Linear(8192, 8192, bias=False) for _ in range(8)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
batch = torch.randn(16384, 8192)
while True:
    began = time.time()
    optimizer.zero_grad(set_to_none=True)
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    loss.item()
    print(json.dumps({"began": began, "ended": time.time()}), flush=True)
