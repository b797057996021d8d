"""A decode loop: it makes one token after another, and reads it before it makes the next one. A line for each: when
the one before was on the host and when it was, Unix seconds."""
import json
import time

from begin import begin
from model import tokens

begin()
one = tokens()
began = time.time()
while True:
    one()
    ended = time.time()
    print(json.dumps({"began": began, "ended": ended}), flush=True)
    began = ended
