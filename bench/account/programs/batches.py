"""Carries out batches without a break: the next one is launched before the last one is over, so that the GPU always has work."""
import json
import time

import torch

from begin import begin, rest


def batches(make):
    begin()
    work = make()
    epoch = time.time() - time.perf_counter()
    before = None
    began = time.perf_counter()
    while True:
        work()
        after = torch.cuda.Event(blocking=True)
        after.record()
        if before is not None:
            before.synchronize()
            ended = time.perf_counter()
            print(json.dumps({"began": epoch + began, "ended": epoch + ended}), flush=True)
            began = ended
        before = after
        rest()
