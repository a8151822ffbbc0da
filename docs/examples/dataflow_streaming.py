"""A pipeline of three nodes that run at the same time: each record flows on at once."""

import tempfile
from collections import deque
from pathlib import Path

import slotwise


def readings(hours):
    """The temperature of each hour, as a sensor would report it."""
    for hour in range(hours):
        yield hour, 12 + hour % 24 * 0.5 + hour // 24


def smooth(readings, width):
    """The mean of the last few readings."""
    last = deque(maxlen=width)
    for hour, degrees in readings:
        last.append(degrees)
        yield hour, round(sum(last) / len(last), 2)


def alarms(means, limit):
    """The hours in which the mean passes the limit."""
    above = False
    for hour, degrees in means:
        if degrees > limit and not above:
            yield f"hour {hour}: {degrees} degrees"
        above = degrees > limit


flow = slotwise.Dataflow()
raw = flow.node(readings, parameters={"hours": 96})
means = flow.node(smooth, raw.shm(), parameters={"width": 3})
found = flow.node(alarms, means.tcp(), parameters={"limit": 23.0})
flow.write(found)

if __name__ == "__main__":
    out = Path(tempfile.mkdtemp()) / "out"
    result = slotwise.run([flow.job("alarms", out)], slots=4)
    print("failed:", result.failed)
    print((out / "part-n-00000").read_text(), end="")
