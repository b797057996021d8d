"""Multiplies fp32 matrices without a break: much power, and yet less than makes an H200 lower its clock. A line for each batch of some 25 ms: when it began and when it was over, Unix seconds."""
import torch

from batches import batches

width = 4096


def batch():
    torch.backends.cuda.matmul.allow_tf32 = False
    a = torch.randn(width, width, device="cuda") / width**0.5
    x = torch.empty_like(a)

    def work():
        for _ in range(9):
            torch.matmul(a, a, out=x)

    return work


batches(batch)
