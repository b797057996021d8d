"""The CUDA stream of a program: the default one, or one of its own where LAXITY_STREAM is set."""
import os

import torch


def choose():
    if os.environ.get("LAXITY_STREAM"):
        torch.cuda.set_stream(torch.cuda.Stream())
