"""Multiplies bf16 matrices without a break: much power. A line for each batch of some 25 ms: when it began and when it was over, Unix seconds."""
import torch

from batches import batches

width = 8192


def batch():
    a = torch.randn(width, width, device="cuda", dtype=torch.bfloat16) / width**0.5
    x = torch.empty_like(a)

    def work():
        for _ in range(16):
            torch.matmul(a, a, out=x)

    return work


batches(batch)
