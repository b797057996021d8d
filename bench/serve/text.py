"""A server of texts: every PERIOD seconds it is asked for a text of TOKENS tokens, and reads each before it makes the
next one. A line for each text: when it was due and when its last token was on the host, Unix seconds."""
import json
import time

from begin import begin
from model import tokens

PERIOD, TOKENS = 0.5, 100
begin()
one = tokens()
for _ in range(TOKENS):
    one()
epoch = time.time() - time.perf_counter()
due = time.perf_counter() + PERIOD
while True:
    time.sleep(max(0, due - time.perf_counter()))
    for _ in range(TOKENS):
        one()
    print(json.dumps({"began": epoch + due, "ended": epoch + time.perf_counter()}), flush=True)
    due += PERIOD
