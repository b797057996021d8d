"""An inference server: a model of 16 small layers answers a request every PERIOD seconds, one at a time. A line for
each: when it was due and when its answer was on the host, Unix seconds. A request that is due while another one is
answered waits, and that time counts."""
import json
import time

import torch

from begin import begin
from stream import choose

PERIOD = 0.03
begin()
choose()
layers = [m for _ in range(16) for m in (torch.nn.Linear(1024, 1024), torch.nn.LayerNorm(1024), torch.nn.GELU())]
model = torch.nn.Sequential(*layers).cuda().half().eval()
batch = torch.randn(16, 1024).half().pin_memory()
with torch.inference_mode():
    for _ in range(50):
        model(batch.cuda(non_blocking=True)).cpu()
    epoch = time.time() - time.perf_counter()
    due = time.perf_counter() + PERIOD
    while True:
        time.sleep(max(0, due - time.perf_counter() - 0.002))
        while time.perf_counter() < due:  # a nap ends late by some tenths of a millisecond
            pass
        model(batch.cuda(non_blocking=True)).cpu()
        print(json.dumps({"began": epoch + due, "ended": epoch + time.perf_counter()}), flush=True)
        due += PERIOD
