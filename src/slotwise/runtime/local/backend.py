"""The local backend: this machine. Its slots are worker processes; it runs in real time.

It can emulate several hosts, each with its own worker processes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from types import TracebackType
from typing import Self

from slotwise.model.cluster import ANY_KIND, Cluster, Host
from slotwise.model.decision import GiveUp, Launch, Preempt
from slotwise.model.event import (
    Event,
    HostJoined,
    HostLost,
    JobArrived,
    PhaseClosed,
    Request,
    TasksAdded,
)
from slotwise.model.job import PhaseId
from slotwise.programs.execution import Execution
from slotwise.runtime.executing import Executing, Pickle
from slotwise.runtime.local.arrivals import Arrivals, Ask, Entry, StopTask
from slotwise.runtime.local.unresponsive import HostChange, ResponseMonitor
from slotwise.runtime.local.workers import Reply, Workers

HOST = "localhost"
"""The name of the only host, if no cluster is emulated."""


class LocalBackend:
    """Runs launches in the worker processes of this machine, one task in each at a time.

    An attempt that occupies several slots runs in one worker, and as many more of its host do
    nothing meanwhile.

    `slots` is their number, or their number by kind, or a cluster: then each host has its own
    worker processes, one for each slot. Every worker of a host runs tasks of every kind. A
    preempted task is asked to stop, and killed at the instant that the decision gives. If it
    stops by itself, the value that it kept is passed to its next attempt.

    With several hosts, a host is unresponsive if another process has stopped all of its
    workers. Within the grace of the cluster it may resume without consequences. After that, its
    tasks are reported as lost, and their later results are ignored; its processes are killed
    when the host is back. A single worker that is stopped for longer than the grace is killed,
    and its task is reported as lost.

    An attempt is begun once. A repeated or late launch is dropped and reported as dropped.
    `Executing` stores results and commits jobs. `close` ends all processes and removes the
    output of jobs that are not done.

    If it `is_open`, jobs and requests may be `put` until `JobsClosed`, by which the run ends.

    SlotwiseError if the worker processes cannot be started.
    """

    def __init__(
        self,
        executions: Iterable[Execution],
        slots: int | Mapping[str, int] | Cluster,
        *,
        is_open: bool = False,
    ) -> None:
        given = list(executions)
        self._arrivals = Arrivals(given, is_open=is_open)
        self._events: list[Event] = []  # events that `wait` returns next
        cluster = slots if isinstance(slots, Cluster) else self.cluster(slots)
        self._host_of = [
            host for host in cluster.hosts for _ in range(sum(host.slots.values()))
        ]
        # The slots of each host in which nothing runs; the next one is last.
        self._free: dict[str, list[int]] = {host.name: [] for host in cluster.hosts}
        for slot in reversed(range(len(self._host_of))):
            self._free[self._host_of[slot].name].append(slot)
        self._held: dict[int, Launch] = {}
        # The further slots of attempts that occupy several; their workers do nothing.
        self._idle: dict[int, list[int]] = {}
        self._ends: dict[int, float] = {}  # when attempts that were asked to stop are killed
        # Attempts reported as lost that unresponsive hosts may still run.
        self._abandoned: dict[int, Launch] = {}
        speeds = [host.speed for host in self._host_of]
        try:
            for execution in given:
                execution.open()
            # A session prints nothing itself, so what its calls print goes to stdout.
            self._workers = Workers(len(speeds), speeds=speeds, stdout=1 if is_open else 2)
        except BaseException:
            for execution in given:
                execution.close(succeeded=False)
            raise
        self._jobs = Executing(
            now=lambda: self.now,
            report=lambda event: self._events.append(event),
            wake=self._workers.wake,
            forget=self._workers.forget,
        )
        for execution in given:
            self._jobs.add(execution)
        self._monitor = ResponseMonitor(self._free, cluster.grace, self._workers.is_stopped)
        self._zero = time.monotonic()

    @staticmethod
    def cluster(slots: int | Mapping[str, int]) -> Cluster:
        """This machine as a cluster of one host."""
        return Cluster((Host(HOST, _by_kind(slots)),))

    @property
    def now(self) -> float:
        """Seconds since the backend was created."""
        return time.monotonic() - self._zero

    def put(self, entry: Entry) -> None:
        """Let a job arrive now, after its `open` was called, or hear a request, or act.

        May be called from any thread until `close`, if the backend is open.
        """
        self._arrivals.put(entry)
        self._workers.wake()

    def answer_all(self) -> None:
        """Call what was asked, but not heard before the end."""
        for entry in self._arrivals.take(self.now):
            if isinstance(entry, Ask):
                entry.function()

    def perform(self, decision: Launch | Preempt | GiveUp) -> None:
        """Start an attempt, stop one (now or at its `until`), or give up a job."""
        if isinstance(decision, Launch):
            self._launch(decision)
        elif isinstance(decision, Preempt):
            self._stop(decision)
        else:
            self._jobs.give_up(decision.job)

    def wait(self, until: float | None) -> Sequence[Event]:
        """The next events. Waits for them at most until `until` or until a job arrives.

        It also wakes up to kill attempts that still run at the end of their grace period, and
        reports these at once.
        """
        due = inf if until is None else until
        due = min(due, self._arrivals.next_at)
        while True:
            wake = min(due, self._monitor.next_look)
            if self._ends:
                wake = min([wake, *self._ends_heard().values()])
            timeout = 0.0 if self._events else max(0.0, wake - self.now)
            outcomes = self._workers.wait(timeout)
            now = self.now
            if self._monitor.unresponsive:
                outcomes = self._not_abandoned(outcomes)
            if self._monitor.next_look <= now:
                self._look()
            for outcome in outcomes:
                self._hear(outcome)
            if self._ends:
                for slot, end in list(self._ends_heard().items()):
                    if end <= now:
                        self._kill(slot)
            self._jobs.hear_commits()
            self._take_arrivals(now)
            if self._events or due <= now:
                events, self._events = self._events, []
                return events

    def _take_arrivals(self, now: float) -> None:
        """Report the jobs that have arrived by now, and what other threads have put."""
        for entry in self._arrivals.take(now):
            if isinstance(entry, Request):
                self._events.append(entry)
                self._apply(entry)
            elif isinstance(entry, StopTask):
                self._stop_task(entry)
            elif isinstance(entry, Ask):
                entry.function()
            else:
                if entry.job.id not in self._jobs:
                    self._jobs.add(entry)
                self._events.append(JobArrived(entry.job.arrival, entry.job))

    def _apply(self, request: Request) -> None:
        """Let a job grow, or end it if it has waited only for more tasks."""
        if isinstance(request, TasksAdded):
            self._jobs.grow(request.phase, request.count)
        elif isinstance(request, PhaseClosed):
            self._jobs.close_phase(request.phase)

    def _stop_task(self, stop: StopTask) -> None:
        for slot, launch in self._held.items():
            if (launch.phase, launch.task) == (stop.phase, stop.task):
                self._kill(slot)
                return

    def progress(self, phase: PhaseId, task: int) -> tuple[float, float | None] | None:
        """What a task that runs has reported; only in the thread of the loop."""
        for slot, launch in self._held.items():
            if (launch.phase, launch.task) == (phase, task):
                return self._workers.progress(slot)
        return None

    def close(self) -> None:
        """End all processes; remove the output of unfinished jobs. Idempotent."""
        self._jobs.end_commits()
        self._workers.close()
        self._jobs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _launch(self, launch: Launch) -> None:
        free, width = self._free[launch.host], self._jobs.slots_of(launch)
        start = self._jobs.begin(launch, _lacking(len(free), width, launch.host))
        if start is None:
            return
        slot = free.pop()
        if width > 1:
            self._idle[slot] = [free.pop() for _ in range(width - 1)]
        self._held[slot] = launch
        self._monitor.take_stopped(slot)
        key, runner = start.runner_key, start.runner
        self._workers.start(slot, key, runner, start.arguments, start.kept, sleeps=start.sleeps)

    def _stop(self, preempt: Preempt) -> None:
        """Kill an attempt, or ask it to stop. No effect if it has just ended by itself.

        If several instants were given at which to kill an attempt, the earliest applies.
        """
        wanted = (preempt.phase, preempt.task, preempt.attempt)
        for slot, launch in self._held.items():
            if (launch.phase, launch.task, launch.attempt) == wanted:
                end = -inf if preempt.until is None else preempt.until
                if end <= self.now:
                    self._ends[slot] = end
                    if slot in self._ends_heard():
                        self._kill(slot)
                elif end < self._ends.get(slot, inf):
                    self._ends[slot] = end
                    self._workers.tell(slot, self._zero + end)
                return

    def _ends_heard(self) -> dict[int, float]:
        """When attempts are killed; those of unresponsive hosts only after these are back."""
        unresponsive = self._monitor.unresponsive
        if not unresponsive:
            return self._ends
        return {
            s: end for s, end in self._ends.items() if self._host_of[s].name not in unresponsive
        }

    def _kill(self, slot: int) -> None:
        self._workers.kill(slot)
        self._jobs.killed(self._release(slot))

    def _release(self, slot: int) -> Launch:
        """Free the slots of an attempt that is over. The launch of the attempt."""
        free = self._free[self._host_of[slot].name]
        free += self._idle.pop(slot, ())
        free.append(slot)
        self._ends.pop(slot, None)
        return self._held.pop(slot)

    def _abandon(self, slot: int, reason: str) -> None:
        """End the attempt in a slot of an unresponsive host, which may still run it."""
        launch = self._abandoned[slot] = self._release(slot)
        self._free[self._host_of[slot].name].remove(slot)
        self._jobs.abandoned(launch, reason)

    def _not_abandoned(self, outcomes: list[Reply]) -> list[Reply]:
        """The replies of attempts that are not abandoned.

        A host that replies may be back, so the next look is now.
        """
        for outcome in outcomes:
            if self._host_of[outcome.slot].name in self._monitor.unresponsive:
                self._monitor.next_look = -inf
            if outcome.slot in self._abandoned:
                self._free_abandoned(outcome.slot)
                outcomes = [one for one in outcomes if one is not outcome]
        return outcomes

    def _look(self) -> None:
        """Report hosts that are now unresponsive, overdue, or back; end stuck workers."""
        now = self.now
        for host, change in self._monitor.look(now):
            if change is HostChange.LOST:
                self._events.append(HostLost(now, host))
            elif change is HostChange.OVERDUE:
                seconds = self._monitor.seconds(host, now)
                for slot in self._slots_of(host, self._held):
                    self._abandon(slot, f"host {host} has not responded for {seconds:.1f} s")
            else:
                for slot in self._slots_of(host, self._abandoned):
                    self._workers.kill(slot)
                    self._free_abandoned(slot)
                self._events.append(HostJoined(now, host))
        for slot, seconds in self._monitor.stuck(now).items():
            self._workers.kill(slot)
            if slot in self._held:
                reason = f"its worker process has been stopped for {seconds:.1f} s (SIGSTOP)"
                self._jobs.failed(self._release(slot), reason, lost=True)

    def _slots_of(self, host: str, slots: Iterable[int]) -> list[int]:
        return [slot for slot in slots if self._host_of[slot].name == host]

    def _free_abandoned(self, slot: int) -> None:
        """An abandoned attempt has ended on its host, too."""
        self._free[self._host_of[slot].name].append(slot)
        self._jobs.over(self._abandoned.pop(slot))

    def _hear(self, outcome: Reply) -> None:
        if outcome.slot in self._abandoned:  # Its host has just become overdue.
            self._free_abandoned(outcome.slot)
            return
        launch = self._release(outcome.slot)
        if outcome.status == "stopped":
            assert isinstance(outcome.value, Pickle)
            work = self._computed(launch, outcome) * self._host_of[outcome.slot].speed
            self._jobs.stopped(launch, outcome.value, work)
        elif outcome.status == "done":
            self._jobs.finished(launch, outcome.value, self._computed(launch, outcome))
        else:
            self._jobs.failed(launch, str(outcome.value), lost=outcome.status == "lost")

    def _computed(self, launch: Launch, outcome: Reply) -> float:
        """The seconds of an attempt, without those during which it was stopped from outside."""
        stopped = self._monitor.take_stopped(outcome.slot)
        if self._jobs.sleeps(launch):
            return outcome.seconds  # A sleep continues while its process is stopped.
        return max(0.0, outcome.seconds - stopped)


def _lacking(free: int, width: int, host: str) -> str:
    """Why a task that occupies `width` slots cannot begin; empty if it can."""
    if free >= width:
        return ""
    return (
        f"fewer than {width} workers of {host} are free"
        if free
        else f"no worker of {host} is free"
    )


def _by_kind(slots: int | Mapping[str, int]) -> Mapping[str, int]:
    return {ANY_KIND: slots} if isinstance(slots, int) else slots
