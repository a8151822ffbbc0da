"""Replay a log: read it, repeat its decisions, and compare them."""

import tempfile
from pathlib import Path

import slotwise
from slotwise import Fault, Job, Phase, Simulation, Tasks

log = Path(tempfile.mkdtemp()) / "run.jsonl"
jobs = [Job("a", (Phase("map", Tasks(count=20, work=1.0)),))]
breaks = Simulation(seed=3, noise=0.2, fault=lambda launch: break_third(launch))


def break_third(launch):
    return Fault("the disk is full") if launch.task == 3 and launch.attempt == 1 else None


result = slotwise.simulate(jobs, "flex", slots=4, simulation=breaks, log=log)
print("attempts:", result.metrics["attempts"])

again = slotwise.replay(log)
print(f"{again.decisions} decisions in {again.turns} turns, identical: {again.is_identical}")

read = slotwise.read_log(log)
print("first turn:", [type(entry).__name__ for entry in read.turns[0].decisions])
