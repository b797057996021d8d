"""A model of an LLM's shape: 24 layers, which make one token after another, each by a CUDA graph that is replayed."""
import torch

width, layers = 2048, 24


@torch.inference_mode()
def tokens():
    """Make the model, and return a function that makes one token and returns when it is on the host."""
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

    def one():
        graph.replay()
        return token.item()

    return one
