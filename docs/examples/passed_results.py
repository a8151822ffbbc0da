"""Tasks that use the results of earlier tasks: large arrays pass without being copied."""

import numpy as np

import slotwise
from slotwise import Calls, Job, Phase, Tasks


def make(task):
    """A part of the data."""
    return np.arange(task * 1_000_000, (task + 1) * 1_000_000)


def add(task, results):
    """A second parameter receives the results of the phases that this one waits for."""
    parts = results["make"]
    return len(parts), parts[0].flags.owndata, int(sum(part.sum() for part in parts))


job = Job("sum", (Phase("make", Tasks(4)), Phase("add", Tasks(1), after=frozenset({"make"}))))
calls = Calls(job, {"make": make, "add": add})
result = slotwise.run([calls], slots=2)
print("failed:", result.failed)
print("parts, copied, sum:", calls.results["add"][0])
