"""PyTorch programs that check their own result:

  torch_animal.py eager|small|loader|spawn [name=value ...]

The result goes to the file that ZOO_OUT names, "right ..." or "wrong ...". Exit status:
0 right, 3 wrong; an exception ends it with 1.
"""
import os
import sys

import torch

settings = dict(a.split("=", 1) for a in sys.argv[2:] if "=" in a)


def number(name, fallback):
    return int(settings.get(name, fallback))


def say(text):
    path = os.environ.get("ZOO_OUT")
    if path:
        with open(path, "a") as f:
            f.write(text + "\n")
    else:
        print(text, flush=True)


def conclude(wrong, done):
    say(f"wrong: {wrong} of {done}" if wrong else f"right {done}")
    sys.stdout.flush()
    sys.exit(3 if wrong else 0)


def small_integers(*shape, low=-1, high=2, seed=1):
    """Whole numbers so small that sums of products are exact in float32."""
    g = torch.Generator().manual_seed(seed)
    return torch.randint(low, high, shape, generator=g).float()


def eager():
    n, loops = number("n", 8192), number("kernels", 20)
    torch.backends.cuda.matmul.allow_tf32 = False
    a = torch.randint(-1, 2, (n, n), device="cuda").float()
    b = torch.randint(-1, 2, (n, n), device="cuda").float()
    want = (a.sum(0).double() @ b.sum(1).double()).item()
    wrong = 0
    for i in range(loops):
        c = a @ b
        if i % 7 == 6 or i == loops - 1:
            wrong += c.double().sum().item() != want
    conclude(wrong, loops)


def small():
    torch.manual_seed(number("seed", 1))
    torch.backends.cuda.matmul.allow_tf32 = False
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256)).cuda().eval()
    requests, wrong = number("requests", 150), 0
    with torch.no_grad():
        x = torch.randn(64, 256).pin_memory()
        static = torch.zeros(64, 256, device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                model(static)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = model(static)
        for i in range(requests):
            here = x + i
            static.copy_(here, non_blocking=True)
            graph.replay()
            got = out.clone()
            want = model(here.cuda())
            wrong += (got - want).abs().max().item() > 1e-3 * (1 + want.abs().max().item())
            wrong += not torch.isfinite(got.cpu()).all()
    conclude(int(wrong), requests)


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, i):
        return torch.full((1024,), float(i))


def loader():
    torch.zeros(1, device="cuda")  # the workers are forked from a process with a context
    data = torch.utils.data.DataLoader(Numbers(), batch_size=16, num_workers=2, shuffle=True, pin_memory=True)
    total = torch.zeros((), device="cuda", dtype=torch.float64)
    for batch in data:
        total += batch.cuda(non_blocking=True).double().sum()
    conclude(int(total.item() != 1024 * sum(range(512))), 512)


def one(seed, wrong):
    n = 2048
    a, b = small_integers(n, n, seed=seed).cuda(), small_integers(n, n, seed=seed + 1).cuda()
    want = (a.sum(0).double() @ b.sum(1).double()).item()
    for _ in range(20):
        c = a @ b
    if c.double().sum().item() != want:
        with wrong.get_lock():
            wrong.value += 1


def spawn():
    context = torch.multiprocessing.get_context("spawn")
    wrong = context.Value("i", 0)
    children = [context.Process(target=one, args=(s, wrong)) for s in range(2)]
    for c in children:
        c.start()
    for c in children:
        c.join()
    conclude(wrong.value + sum(c.exitcode != 0 for c in children), len(children))


if __name__ == "__main__":
    {"eager": eager, "small": small, "loader": loader, "spawn": spawn}[sys.argv[1]]()
