"""A task that is asked to stop keeps its progress: its next attempt does only the rest."""

import time

import slotwise
from slotwise import Calls, Job, Phase, Preemption, Tasks, task

STEPS = 150


def add_up(number: int) -> int:
    """Add up some numbers, slowly."""
    begin, total = task.kept(default=(0, 0))
    for step in range(begin, STEPS):
        if task.stop_requested():
            task.stop(keep=(step, total))
        total += step
        time.sleep(0.02)
    print(f"task {number} did {STEPS - begin} steps in its last attempt")  # Goes to stderr.
    return total


long = Calls(Job("long", (Phase("add", Tasks(2)),), pool="old"), add_up)
short = Job("short", (Phase("nap", Tasks(1, work=0.2)),), arrival=0.3, pool="new")
result = slotwise.run(
    [long, short], "fair", slots=2, preemption=Preemption(fair_after=0.2, grace=5.0)
)
taken = result.metrics["preemption"]
print("failed:", result.failed)
print("asked to stop:", taken["told"], "stopped:", taken["stopped"])
print("kept something:", taken["kept_seconds"] > 0)
print("sums:", [long.results["add"][number] for number in range(2)])
