"""A decode loop of an LLM's shape: a model of 24 layers makes one token after another, each by a CUDA graph that is
replayed, and reads it before it makes the next one. A line for each: when the one before was on the host and when it
was, Unix seconds."""
import json
import time

import torch

from begin import begin

begin()
width, layers = 2048, 24
with torch.inference_mode():
    weights = [(torch.randn(width, 4 * width, device="cuda", dtype=torch.half) * 0.01,
                torch.randn(4 * width, width, device="cuda", dtype=torch.half) * 0.01) for _ in range(layers)]
    head = torch.randn(width, 32000, device="cuda", dtype=torch.half) * 0.01
    table = torch.randn(32000, width, device="cuda", dtype=torch.half)
    token = torch.zeros(1, device="cuda", dtype=torch.long)

    def step():
        x = table[token]
        for up, down in weights:
            x = x + torch.nn.functional.gelu(torch.nn.functional.layer_norm(x, (width,)) @ up) @ down
        token.copy_((x @ head).argmax(dim=-1))

    for _ in range(3):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    began = time.time()
    while True:
        graph.replay()
        token.item()
        ended = time.time()
        print(json.dumps({"began": began, "ended": ended}), flush=True)
        began = ended
