"""Takes the steps of steps.py in turn until SIGTERM; then prints when each began and ended."""
import json
import signal
import time

from steps import steps

ROUNDS = 40
PAUSE = 0.1  # seconds; longer than the gap that ends a busy interval

going = True


def stop(*_):
    global going
    going = False


signal.signal(signal.SIGTERM, stop)
for _ in range(20):
    for step in steps.values():
        step["take"]()
print(json.dumps({"ready": True}), flush=True)
times = {name: [] for name in steps}
while going:
    for _ in range(ROUNDS):
        if not going:
            break
        for name, step in steps.items():
            began = time.monotonic()
            step["take"]()
            times[name].append((began, time.monotonic()))
    time.sleep(PAUSE)
for name, step in steps.items():
    print(json.dumps({"loop": name, "launches": step["launches"], "steps": times[name]}), flush=True)
