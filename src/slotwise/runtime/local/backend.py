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
    LaunchDropped,
    PhaseClosed,
    Request,
    TaskFailed,
    TaskFinished,
    TaskKilled,
    TasksAdded,
)
from slotwise.programs.calls import Sleep
from slotwise.programs.execution import Execution
from slotwise.runtime.local.arrivals import Arrivals, Ask, Entry, StopTask
from slotwise.runtime.local.jobs import DONE, LiveJob
from slotwise.runtime.local.unresponsive import HostChange, ResponseMonitor
from slotwise.runtime.local.workers import Pickle, Reply, Workers
from slotwise.runtime.signals import undisturbed

HOST = "localhost"
"""The name of the only host, if no cluster is emulated."""


class LocalBackend:
    """Runs launches in the worker processes of this machine, one task in each at a time.

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

    A job is committed when its last task has succeeded, and that event is reported only after
    the commit: the output of a completed job is in place. Errors of the job's own code and of
    the disk are reported as task failures. `close` ends all processes and removes the output of
    jobs that are not done.

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
        self._jobs = {execution.job.id: LiveJob.of(execution) for execution in given}
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
        self._ends: dict[int, float] = {}  # when attempts that were asked to stop are killed
        # Attempts reported as lost that unresponsive hosts may still run.
        self._abandoned: dict[int, tuple[LiveJob, Launch]] = {}
        speeds = [host.speed for host in self._host_of]
        try:
            for execution in given:
                execution.open()
            self._workers = Workers(len(speeds), speeds=speeds)
        except BaseException:
            for execution in given:
                execution.close(succeeded=False)
            raise
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
            live = self._jobs[decision.job]
            live.given_up = True
            self._close_if_given_up(live)

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
                if entry.job.id not in self._jobs:  # It was not known at the start.
                    self._jobs[entry.job.id] = LiveJob.of(entry)
                self._events.append(JobArrived(entry.job.arrival, entry.job))

    def _apply(self, request: Request) -> None:
        """Let a job grow, or end it if it has waited only for more tasks."""
        live = None
        if isinstance(request, TasksAdded | PhaseClosed):
            live = self._jobs.get(request.phase.job)
        if live is None:
            return
        if isinstance(request, TasksAdded):
            live.grow(request.phase.phase, request.count)
        else:
            live.open -= 1
            if live.is_done:
                live.execution.close(succeeded=True)
                self._forget(live)

    def _stop_task(self, stop: StopTask) -> None:
        for slot, launch in self._held.items():
            if (launch.phase, launch.task) == (stop.phase, stop.task):
                self._kill(slot)
                return

    def close(self) -> None:
        """End all processes; remove the output of unfinished jobs. Idempotent."""
        self._workers.close()
        while self._jobs:
            _, live = self._jobs.popitem()
            live.execution.close(succeeded=False)
        while self._abandoned:
            _, (live, launch) = self._abandoned.popitem()
            live.discard(launch)

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
        if reason := self._objection(launch):
            phase, host = launch.phase, launch.host
            self._events.append(
                LaunchDropped(self.now, phase, launch.task, launch.attempt, host, reason)
            )
            return
        live = self._jobs[launch.phase.job]
        live.begin(launch)
        if live.skips is not None and live.skips(launch.phase.phase, launch.task):
            self._done(live, launch, 0.0)
            return
        try:
            arguments = live.arguments(launch)
        except Exception as error:
            self._fail(live, launch, f"it cannot be started: {_sentence(error)}")
            return
        slot = self._free[launch.host].pop()
        self._held[slot] = launch
        self._monitor.take_stopped(slot)
        kept = live.kept.get((launch.phase.phase, launch.task), b"")
        runner = live.execution.runner
        sleeps = isinstance(live.execution, Sleep)
        key = live.runner_key
        self._workers.start(slot, key, runner, arguments, kept, sleeps=sleeps)

    def _objection(self, launch: Launch) -> str:
        """Why a launch is dropped; empty if it is valid."""
        live = self._jobs.get(launch.phase.job)
        if live is None or live.given_up:
            return "its job is over"
        begun = live.latest(launch)
        if begun == DONE:
            return "the task is done"
        # A task that was never begun cannot run, which saves the search for most launches.
        is_known = begun and any(
            (held.phase, held.task) == (launch.phase, launch.task)
            for held in self._held.values()
        )
        if is_known:
            return f"attempt {begun} of the task runs"
        if launch.attempt <= begun:
            return f"attempt {begun} of the task was begun before, and is over"
        if not self._free[launch.host]:
            return f"no worker of {launch.host} is free"
        return ""

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
        live, launch = self._release(slot)
        live.discard(launch)
        self._events.append(TaskKilled(self.now, launch.phase, launch.task, launch.attempt))
        self._one_less(live)

    def _release(self, slot: int) -> tuple[LiveJob, Launch]:
        """Free a slot whose attempt is over. The job and launch of the attempt."""
        self._free[self._host_of[slot].name].append(slot)
        self._ends.pop(slot, None)
        launch = self._held.pop(slot)
        return self._jobs[launch.phase.job], launch

    def _abandon(self, slot: int) -> tuple[LiveJob, Launch]:
        """End the attempt in a slot of an unresponsive host, which may still run it."""
        live, launch = self._abandoned[slot] = self._release(slot)
        self._free[self._host_of[slot].name].remove(slot)
        return live, launch

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
                    live, launch = self._abandon(slot)
                    reason = f"host {host} has not responded for {seconds:.1f} s"
                    self._fail(live, launch, reason, lost=True)
            else:
                for slot in self._slots_of(host, self._abandoned):
                    self._workers.kill(slot)
                    self._free_abandoned(slot)
                self._events.append(HostJoined(now, host))
        for slot, seconds in self._monitor.stuck(now).items():
            self._workers.kill(slot)
            if slot in self._held:
                reason = f"its worker process has been stopped for {seconds:.1f} s (SIGSTOP)"
                self._fail(*self._release(slot), reason, lost=True)

    def _slots_of(self, host: str, slots: Iterable[int]) -> list[int]:
        return [slot for slot in slots if self._host_of[slot].name == host]

    def _free_abandoned(self, slot: int) -> None:
        """An abandoned attempt has ended on its host, too: discard its output."""
        self._free[self._host_of[slot].name].append(slot)
        live, launch = self._abandoned.pop(slot)
        live.discard(launch)

    def _hear(self, outcome: Reply) -> None:
        if outcome.slot in self._abandoned:  # Its host has just become overdue.
            self._free_abandoned(outcome.slot)
            return
        live, launch = self._release(outcome.slot)
        if outcome.status == "stopped":
            self._stopped(live, launch, outcome)
            return
        if outcome.status != "done":
            self._fail(live, launch, str(outcome.value), lost=outcome.status == "lost")
        elif not live.is_last:
            self._finished(live, launch, outcome)
        else:
            with undisturbed():  # No signal comes between the commit and its record.
                self._finished(live, launch, outcome)

    def _finished(self, live: LiveJob, launch: Launch, outcome: Reply) -> None:
        """An attempt has succeeded; if it is the last of its job, commit the output."""
        try:
            live.store(launch, outcome.value)
        except Exception as error:
            self._fail(live, launch, f"its result cannot be kept: {_sentence(error)}")
            return
        self._done(live, launch, self._computed(live, outcome) - live.waited(launch))

    def _done(self, live: LiveJob, launch: Launch, seconds: float) -> None:
        """Report a task as done."""
        live.finish(launch)
        self._events.append(
            TaskFinished(self.now, launch.phase, launch.task, launch.attempt, seconds)
        )
        if live.is_done:
            self._forget(live)
        else:
            self._one_less(live)

    def _stopped(self, live: LiveJob, launch: Launch, outcome: Reply) -> None:
        """An attempt stopped on request. If it kept a value, its seconds count as kept work."""
        assert isinstance(outcome.value, Pickle)
        if outcome.value:
            live.kept[launch.phase.phase, launch.task] = outcome.value
        live.discard(launch)
        speed = self._host_of[outcome.slot].speed
        kept = self._computed(live, outcome) * speed if outcome.value else 0.0
        self._events.append(
            TaskKilled(self.now, launch.phase, launch.task, launch.attempt, kept=kept)
        )
        self._one_less(live)

    def _computed(self, live: LiveJob, outcome: Reply) -> float:
        """The seconds of an attempt, without those during which it was stopped from outside."""
        stopped = self._monitor.take_stopped(outcome.slot)
        if isinstance(live.execution, Sleep):
            return outcome.seconds  # A sleep continues while its process is stopped.
        return max(0.0, outcome.seconds - stopped)

    def _fail(self, live: LiveJob, launch: Launch, reason: str, lost: bool = False) -> None:
        if live.absorbs is not None and live.absorbs(
            launch.phase.phase, launch.task, reason, lost
        ):
            self._done(live, launch, 0.0)
            return
        live.discard(launch)
        text = f"{live.execution.describe(launch.phase.phase, launch.task)}: {reason}"
        self._events.append(
            TaskFailed(self.now, launch.phase, launch.task, launch.attempt, text, lost)
        )
        self._one_less(live)

    def _one_less(self, live: LiveJob) -> None:
        live.running -= 1
        self._close_if_given_up(live)

    def _close_if_given_up(self, live: LiveJob) -> None:
        if live.given_up and not live.running:
            self._forget(live)
            live.execution.close(succeeded=False)

    def _forget(self, live: LiveJob) -> None:
        del self._jobs[live.execution.job.id]
        if live.runner_key == live.execution.job.id:
            self._workers.forget(live.runner_key)


def _by_kind(slots: int | Mapping[str, int]) -> Mapping[str, int]:
    return {ANY_KIND: slots} if isinstance(slots, int) else slots


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        place = f" ({error.filename})" if error.filename else ""
        return f"{error.strerror}{place}"
    return f"{type(error).__name__}: {error}"
