"""Waits for SIGUSR1 and takes the steps of the first phase of steps.py in turn, from the next SIGUSR1 on those of the
next one, until SIGTERM; then prints when each began and ended."""
import ctypes
import json
import os
import signal
import time

from steps import phases

at = -1  # the present phase
going = True


def further(*_):
    global at
    at = min(at + 1, len(phases) - 1)


def stop(*_):
    global going
    going = False


# The thread that takes the steps stays on one core: what a move costs is no part of what is compared.
os.sched_setaffinity(0, {ctypes.CDLL(None).sched_getcpu()})
for phase in phases:
    for _ in range(20):
        for step in phase["steps"].values():
            step["take"]()
signal.signal(signal.SIGUSR1, further)
signal.signal(signal.SIGTERM, stop)
print(json.dumps({"ready": True}), flush=True)
times = [{name: [] for name in phase["steps"]} for phase in phases]
while going and at < 0:
    time.sleep(0.1)
while going:
    now = at
    for _ in range(phases[now]["rounds"]):
        if not going or at != now:
            break
        for name, step in phases[now]["steps"].items():
            began = time.monotonic()
            step["take"]()
            times[now][name].append((began, time.monotonic()))
    time.sleep(phases[now]["pause"])
for number, phase in enumerate(phases[: at + 1]):
    for name, step in phase["steps"].items():
        print(json.dumps({"loop": name, "phase": number, "launches": step["launches"], "steps": times[number][name]}), flush=True)
