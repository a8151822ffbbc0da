"""A test of the history: estimates of jobs that ran before, compared with the true work.

Jobs are run live without a history, with the history of the first run, and with the same
history ten times too long or too short. The log has the estimates at every instant; the true
work is known when all jobs are done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import slotwise
from experiments.dmrs.profiles import words
from slotwise.core.decisions import Launch
from slotwise.core.events import JobArrived, TaskFinished
from slotwise.core.history import append_history, read_history
from slotwise.core.job import PhaseId
from slotwise.core.log import Log, Turn
from slotwise.core.state import State
from slotwise.jobs.builtin.teragen import TeraGen
from slotwise.workload.workload import ProgramJob

SLOTS = 2
SIZE = 32 << 20
"""The input of a job, in bytes."""

MAPS = 16
REDUCES = 4

PATTERN = "abc"
"""The pattern of grep: it occurs in one word of a few hundred."""

NOTHING, KNOWN = "nothing", "the run before"
LONG, SHORT = "ten times too long", "ten times too short"
HISTORIES = (NOTHING, KNOWN, LONG, SHORT)
"""The history of each run, in order of the runs."""

WRONG = {LONG: 10.0, SHORT: 0.1}
"""The factor on the seconds of the first run."""


@dataclass(frozen=True, slots=True)
class Left:
    """The remaining work of a phase at an instant, seconds at speed 1.

    tasks     the number of its tasks that have ended by then
    estimate  the value that schedulers received
    truth     the time that its tasks still had to compute, known afterwards
    """

    phase: PhaseId
    tasks: int
    seconds: float
    estimate: float
    truth: float


@dataclass(frozen=True, slots=True)
class Ran:
    """A run with this history, and the remaining work during the run."""

    history: str
    left: Sequence[Left]


def live(runs: int, seed: int, size: int = SIZE) -> list[list[Ran]]:
    """Rounds of all four runs, one after the other on the slots of this machine.

    They are one experiment, since nothing else should run concurrently. About 25 s a round.
    """
    with TemporaryDirectory(prefix="slotwise-") as name:
        folder = Path(name)
        _write_inputs(folder, seed, size)
        return [_round(folder, number, size) for number in range(runs)]


def _round(folder: Path, number: int, size: int) -> list[Ran]:
    known = folder / f"known-{number}.db"
    ran = [_run(folder, NOTHING, known, size)]
    first = read_history(known)
    ran.append(_run(folder, KNOWN, known, size))
    for history, factor in WRONG.items():
        wrong = folder / f"{history}-{number}.db"
        append_history(wrong, [replace(seen, seconds=factor * seen.seconds) for seen in first])
        ran.append(_run(folder, history, wrong, size))
    return ran


def _run(folder: Path, history: str, database: Path, size: int) -> Ran:
    result = slotwise.run(_jobs(folder, size), "flex", slots=SLOTS, history=database)
    assert not result.failed, result.failed
    return Ran(history, left_of(result.log))


def _jobs(folder: Path, size: int) -> list[ProgramJob]:
    text, records = str(folder / "text.txt"), str(folder / "records" / "part*")

    def job(program: str, inputs: str, reducers: int = REDUCES, **settings: Any) -> ProgramJob:
        return slotwise.mapreduce(
            program,
            inputs,
            folder / program,
            reducers=reducers,
            overwrite=True,
            split_bytes=size // MAPS,
            **settings,
        )

    return [
        job("wordcount", text),
        job("inverted-index", text),
        job("grep", text, reducers=0, parameters={"pattern": PATTERN}),
        job("sort", records),
        job("terasort", records),
    ]


def _write_inputs(folder: Path, seed: int, size: int) -> None:
    with (folder / "text.txt").open("w", encoding="ascii") as file:
        file.writelines(words(size, seed))
    parameters = {"records": size // TeraGen.record_bytes, "seed": seed}
    made = slotwise.mapreduce("teragen", output=folder / "records", parameters=parameters)
    slotwise.run([made], "fifo", slots=SLOTS)


def left_of(log: Log) -> list[Left]:
    """The remaining work of each phase when its job arrives, and after each end of its tasks.

    For logs in which all jobs succeeded.
    """
    header = log.header
    state = State(header.cluster, header.pools)
    truth = _Truth(log)
    found = []
    for turn in log.turns:
        state.at(turn.now)
        for event in turn.events:
            state.apply(event)
        for name in _touched(turn):
            # Finished jobs have no remaining work.
            phase = {one.id: one for one in state.phases_of(name.job)}.get(name)
            if phase is not None and phase.done < phase.phase.tasks.count:
                estimate = phase.work_left(turn.now)
                left = truth.left(name, turn.now)
                found.append(Left(name, phase.done, turn.now, estimate, left))
        for decision in turn.decisions:
            state.apply(decision)
    return found


def _touched(turn: Turn) -> Iterator[PhaseId]:
    """The phases that arrived, or of which a task ended, each once."""
    names: dict[PhaseId, None] = {}
    for event in turn.events:
        if isinstance(event, JobArrived):
            names |= {PhaseId(event.job.id, phase.name): None for phase in event.job.phases}
        elif isinstance(event, TaskFinished):
            names[event.phase] = None
    yield from names


class _Truth:
    """The start and duration of each task, known after the run."""

    def __init__(self, log: Log) -> None:
        speeds = {host.name: host.speed for host in log.header.cluster.hosts}
        self._tasks: dict[PhaseId, list[tuple[float, float, float]]] = {}
        begun: dict[tuple[PhaseId, int, int], tuple[float, float]] = {}
        for turn in log.turns:
            for event in turn.events:
                if isinstance(event, TaskFinished):
                    begin, speed = begun[event.phase, event.task, event.attempt]
                    tasks = self._tasks.setdefault(event.phase, [])
                    tasks.append((begin, speed, event.seconds))
            for decision in turn.decisions:
                if isinstance(decision, Launch):
                    key = (decision.phase, decision.task, decision.attempt)
                    begun[key] = turn.now, speeds[decision.host]

    def left(self, phase: PhaseId, now: float) -> float:
        """The work that its tasks still had to do then, seconds at speed 1."""
        return sum(
            speed * (seconds - min(seconds, max(0.0, now - begin)))
            for begin, speed, seconds in self._tasks[phase]
        )
