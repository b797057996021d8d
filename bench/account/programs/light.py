"""Adds to a tensor that fits into the cache, without a break: little power. A line for each batch of some 25 ms: when it began and when it was over, Unix seconds."""
import torch

from batches import batches


def batch():
    a = torch.zeros(1 << 23, device="cuda")

    def work():
        for _ in range(1800):
            a.add_(1)

    return work


batches(batch)
