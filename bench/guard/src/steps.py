"""Asks for GPU memory step by step until it is refused, and then goes on, with
PyTorch: steps.py BYTES MOST PROCESSES. Prints what steps.c prints."""
import sys
import time

import torch
import torch.multiprocessing as multiprocessing


def go_on(held):
    """Frees step by step until it can compute. Returns how many steps, whether it
    could, and what last kept it from that."""
    error = "-"
    for freed in range(1, len(held) + 1):
        try:
            held.pop()
            torch.cuda.empty_cache()
            if torch.ones(1 << 20, device="cuda").sum().item() == 1 << 20:
                return freed, 1, error
            error = "a wrong sum"
        except RuntimeError as e:
            error = " ".join(str(e).split())
    return len(held), 0, error


def one(size, most, done):
    held, refused, number = [], "-", 0
    try:
        if done:
            torch.zeros(1, device="cuda")
            done.wait(20)  # all have a context before anybody takes the rest
        while (len(held) + 1) * size <= most:
            held.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
            if done:
                time.sleep(0.005)  # the others too
    except RuntimeError as e:  # torch.OutOfMemoryError is one
        number = 2 if "out of memory" in str(e) else 1
        refused = f"torch.{type(e).__name__}" if number == 2 else str(e).split("\n")[0].replace(" ", "_")
    granted = len(held) * size
    if done:
        done.wait(20)
    time.sleep(0.2)  # somebody looks at what is held
    print(granted, number, refused, *go_on(held), flush=True)


if __name__ == "__main__":
    size, most, processes = map(int, sys.argv[1:])
    if processes == 1:
        one(size, most, None)
    else:
        context = multiprocessing.get_context("spawn")
        done = context.Barrier(processes)
        children = [context.Process(target=one, args=(size, most, done)) for _ in range(processes)]
        for c in children:
            c.start()
        for c in children:
            c.join()
