"""What a session shows of its jobs: those that are not over, and the last ones that ended."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from slotwise.core.decisions import Decision
from slotwise.core.dependencies import CANCELLED
from slotwise.core.events import (
    Event,
    JobArrived,
    JobChanged,
    OutputLost,
    TaskFailed,
    TaskFinished,
    TaskKilled,
    TasksAdded,
    launches,
)
from slotwise.core.job import Job
from slotwise.core.resources import amount_text
from slotwise.insight.explain import explain_state
from slotwise.insight.explanation import Explanation, summary_of
from slotwise.insight.report.session_table import MAX_ENDED, SessionJob, SessionJobs
from slotwise.insight.report.text import in_short, seconds
from slotwise.insight.why import limit_of
from slotwise.sessions.loop_thread import LoopThread

BAD_ENDS_MAX = 1_000
"""The number of failed and stopped attempts that are kept for displays."""

ENDED_MAX = 100
"""The number of jobs that ended and are still listed."""

REASONS_MAX = 8
"""Of how many jobs that arrive in one turn it is noted why they wait: bursts stay cheap."""


@dataclass(slots=True)
class _Life:
    """What the state does not keep of a job, or forgets when it is over."""

    pool: str
    tasks: int
    arrival: float
    idle_since: float
    started: float | None = None
    done: int = 0
    raised: int = 0
    reason: str = ""


class _Ending(NamedTuple):
    """How a job ended. It becomes sentences only if it is shown."""

    job: str
    life: _Life
    at: float
    why: str | None  # it failed

    @property
    def state(self) -> str:
        if self.why == CANCELLED:
            return "cancelled"
        return "completed" if self.why is None and not self.life.raised else "failed"

    def row(self) -> SessionJob:
        life = self.life
        tasks = life.done if self.why is None else max(life.done, life.tasks)
        reason = in_short(self.why or "")
        if life.raised and self.why is None:
            reason = (
                f"{life.raised} of {tasks} calls raised" if tasks > 1 else "the call raised"
            )
        return SessionJob(
            *(self.job, life.pool, self.state, tasks, life.done, 0, 0, None),
            reason=reason,
            response=self.at - life.arrival,
        )

    def text(self) -> str:
        life = self.life
        response, begun = self.at - life.arrival, life.started
        waited = (self.at if begun is None else begun) - life.arrival
        text = (
            f"over: {self.state} at {seconds(self.at)}, {seconds(response)} after its arrival"
        )
        text += f"; it waited {seconds(waited)} for its first slot"
        return text + (f": {life.reason}" if life.reason else "")


class SessionViews:
    """Follows the jobs of a session for its displays. It belongs to the thread of the loop.

    Memory: a few numbers of each job that is not over, and of `ENDED_MAX` others.

    bad_ends  the last attempts that failed or were stopped
    """

    def __init__(self, loop: LoopThread) -> None:
        self._loop, self._state = loop, loop.state
        self._lives: dict[str, _Life] = {}
        self._ended: dict[str, _Ending] = {}
        self._over = 0
        self.bad_ends: deque[TaskFailed | TaskKilled] = deque(maxlen=BAD_ENDS_MAX)

    def raised(self, job: str) -> None:
        """Note that a call of a job has raised; it counts as a task that is done."""
        if life := self._lives.get(job):
            life.raised += 1

    def on_turn(
        self, now: float, events: Sequence[Event], decisions: Sequence[Decision]
    ) -> None:
        """Note what arrived, began and ended in a turn."""
        lives, arrived = self._lives, []
        for event in events:
            if isinstance(event, TaskFinished):
                if life := lives.get(event.phase.job):
                    life.idle_since = event.at
                    life.done += 1
            elif isinstance(event, JobArrived):
                job = event.job
                tasks = sum([phase.tasks.count for phase in job.phases])
                lives[job.id] = _Life(job.pool, tasks, job.arrival, job.arrival)
                arrived.append(job.id)
            elif isinstance(event, TaskFailed | TaskKilled):
                self.bad_ends.append(event)
                if life := lives.get(event.phase.job):
                    life.idle_since = event.at
            elif isinstance(event, JobChanged) and (life := lives.get(event.job)):
                life.pool = event.pool
            elif isinstance(event, TasksAdded) and (life := lives.get(event.phase.job)):
                life.tasks += event.count
            elif isinstance(event, OutputLost) and (life := lives.get(event.phase.job)):
                life.done -= len(event.tasks)
        for one in launches(events, decisions):
            if life := lives.get(one.phase.job):
                life.started = now if life.started is None else life.started
        for name in arrived[:REASONS_MAX]:
            if lives[name].started is None and self._state.phases_of(name):
                cause, _ = limit_of(self._state, name, self._loop.scheduler_name, False)
                lives[name].reason = cause.reason
        for name, at in self._state.completed.items():
            self._end(name, at, None)
        for name, why in self._state.failed.items():
            self._end(name, now, why)

    def _end(self, name: str, at: float, why: str | None) -> None:
        if life := self._lives.pop(name, None):
            self._over += 1
            self._ended[name] = _Ending(name, life, at, why)
            if len(self._ended) > ENDED_MAX:
                del self._ended[next(iter(self._ended))]

    def lives(self) -> Iterable[tuple[str, _Life]]:
        """The jobs that have arrived and are not over, in order of arrival."""
        return self._lives.items()

    def ended(self) -> Iterable[_Ending]:
        """The last jobs that ended, in this order."""
        return self._ended.values()

    def ending(self, job: str) -> tuple[str, str]:
        """The pool of a job that is over, and how it ended; "over" if that is forgotten."""
        ended = self._ended.get(job)
        return ("", "over") if ended is None else (ended.life.pool, ended.text())

    def explained(self, job: str) -> Explanation:
        """The slots that a job holds, and why."""
        phases = self._state.phases_of(job)
        pool = phases[0].job.pool if phases else ""
        return explain_state(self._state, job, pool, self._loop.scheduler_name)

    def job(self, job: str, now: float) -> SessionJob:
        """A job that has arrived and is not over."""
        explained, phases = self.explained(job), self._state.phases_of(job)
        running, tasks = (
            sum(len(phase.launches) for phase in phases),
            sum(phase.phase.tasks.count for phase in phases),
        )
        one, life = summary_of(explained), self._lives.get(job)
        state = "running" if running else "waiting" if one.done < tasks else "idle"
        arrival = phases[0].job.arrival
        since = arrival if life is None else life.idle_since
        return SessionJob(
            *(job, explained.pool, state, tasks, one.done, running, one.slots),
            since=since if state == "waiting" else None,
            reason=one.reason,
            response=max(0.0, now - arrival),
            phases=explained.phases,
        )

    def jobs(
        self, left: Sequence[Job], now: float, is_open: bool, waiting: int, most: int | None
    ) -> SessionJobs:
        """All jobs, or the first `most`; `left` are those that are not over."""
        state, kinds = self._state, self._state.cluster.capacity
        slots = sum(state.capacity(kind) for kind in kinds)
        free = sum(sum(state.free(kind).values()) for kind in kinds)
        # A job that was given up may still hold slots.
        left = [job for job in left if job.id not in self._ended]
        ended = (one.row() for one in reversed(self._ended.values()))
        return SessionJobs(
            *(self._loop.scheduler_name, is_open, now, slots, max(0, slots - free)),
            rows=(
                *(self._left(job, now) for job in left[:most]),
                *islice(ended, None if most is None else MAX_ENDED),
            ),
            left=len(left),
            over=self._over,
            waiting=waiting,
            free=self._free(),
        )

    def _free(self) -> dict[str, tuple[str, str]]:
        """What is free of each resource beside slots, and all of it, on responsive hosts."""
        state, free, total = self._state, Counter[str](), Counter[str]()
        for host in state.cluster.hosts:
            if host.name not in state.lost:
                free.update(state.spare.free(host.name))
                total.update(host.resources)
        return {
            name: (amount_text(name, free[name]), amount_text(name, total[name]))
            for name in sorted(total)
        }

    def _left(self, job: Job, now: float) -> SessionJob:
        if self._state.phases_of(job.id):
            return self.job(job.id, now)
        tasks = sum(phase.tasks.count for phase in job.phases)
        return SessionJob(
            *(job.id, job.pool, "waiting", tasks, 0, 0, 0, None, "has not arrived yet", 0.0)
        )
