"""The base of backends that run tasks in worker processes, on this machine or others."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from math import inf
from types import TracebackType
from typing import Self

from slotwise.backends.attempt_logs import AttemptLogs
from slotwise.backends.executing import Executing
from slotwise.backends.inbox import Ask, Inbox, StopTask
from slotwise.backends.local.unresponsive import ResponseChange, ResponseMonitor
from slotwise.backends.local.workers import Conditions, Reply, UserCodeError, Workers
from slotwise.core.cluster import Cluster, Host
from slotwise.core.decisions import GiveUp, Launch, Preempt
from slotwise.core.events import (
    Event,
    HostAdded,
    HostChange,
    HostDrained,
    HostJoined,
    HostLost,
    JobArrived,
    JobsClosed,
    PhaseClosed,
    Request,
    TaskAdopted,
    TasksAdded,
    TasksDropped,
)
from slotwise.core.job import PhaseId
from slotwise.core.retries import exceeded
from slotwise.jobs.accounts import Account
from slotwise.jobs.deferred import DeferredExecution
from slotwise.jobs.execution import Execution


class LiveBackend(ABC):
    """Runs launches in worker processes, one task in each at a time.

    An attempt that occupies several slots runs in one worker; the workers of the other slots
    are idle meanwhile. Every worker of a host runs tasks of every kind. A preempted task is
    asked to stop, and killed at the instant that the decision gives. If it stops by itself, the
    value that it kept is passed to its next attempt.

    A host is unresponsive if all of its workers are, while there are other hosts. Within the
    grace of the cluster it may resume without consequences. After that, its tasks are reported
    as lost, and their later results are ignored. Its processes are killed when the host
    responds again. A single worker that is stopped for longer than the grace is killed, and its
    task is reported as lost.

    An attempt is started once. A repeated or late launch is dropped and reported as dropped. A
    new attempt that cannot start is reported as lost. `Executing` stores results and commits
    jobs. `close` kills all processes and removes the output of unfinished jobs.

    If `is_open`, the `inbox` takes jobs, requests and changes of hosts until `JobsClosed`,
    which ends the run. Worker processes are started for added hosts, and killed on removed
    ones.

    SlotwiseError if the worker processes cannot be started.

    inbox     what other threads ask of the loop
    is_local  whether all hosts are this machine
    """

    is_local = True

    def __init__(
        self,
        executions: Iterable[Execution],
        cluster: Cluster,
        workers: Workers,
        *,
        is_open: bool,
        logs: AttemptLogs | None = None,
    ) -> None:
        """Start the hosts of `cluster`. `workers` has no slots yet and is closed with it.

        `logs` keeps what attempts print.
        """
        given = list(executions)
        self.inbox = Inbox(given, workers.wake, is_open=is_open)
        self._events: list[Event] = []  # events that `wait` returns next
        self._slots = SlotTable()
        self._ends: dict[int, float] = {}  # when attempts that were asked to stop are killed
        self._limits = TimeLimits()
        self._drained: set[str] = set()  # hosts to remove when their last task has ended
        self._deferred = DeferredJobs(given)
        self._workers = workers
        try:
            for execution in given:
                execution.open()
            for host in cluster.hosts:
                self._slots.add(host, self._begin_host(host))
        except BaseException:
            workers.close()
            for execution in given:
                execution.close(succeeded=False)
            raise
        self._jobs = Executing(
            now=lambda: time.monotonic() - self._zero,
            report=self._events.append,
            wake=self._workers.wake,
            forget=self._forget,
            logs=logs,
        )
        for execution in given:
            if not isinstance(execution, DeferredExecution):
                self._jobs.add(execution)
        self._monitor = ResponseMonitor(
            self._slots.of_host,
            cluster.grace,
            self._workers.is_stopped,
            is_local=self.is_local,
        )
        self._zero = time.monotonic()

    @abstractmethod
    def _begin_host(self, host: Host) -> Sequence[int]:
        """Start the workers of a host; returns the numbers of its slots."""

    @property
    def now(self) -> float:
        """Seconds since the backend was created."""
        return time.monotonic() - self._zero

    def on_event(self, event: Request | HostChange) -> None:
        """Apply an event raised by a function that was passed by `Ask`, in this turn."""
        if isinstance(event, HostChange):
            self._change_hosts(event)
        else:
            self._events.append(event)
            self._apply(event)

    def answer_all(self) -> None:
        """Call the functions that are left in the inbox after the end of the run."""
        for entry in self.inbox.take(self.now):
            if isinstance(entry, Ask):
                entry.function()

    def perform(self, decision: Launch | Preempt | GiveUp) -> None:
        """Start an attempt, stop one (now or at its `until`), or give up a job."""
        if isinstance(decision, Launch):
            self._launch(decision)
        elif isinstance(decision, Preempt):
            self._stop(decision)
        else:
            self._deferred.failed(decision.job)
            self._jobs.give_up(decision.job)

    def wait(self, until: float | None) -> Sequence[Event]:
        """The next events. Waits for them at most until `until`, or the next arrival of a job.

        Attempts that still run at the end of their grace period are killed and reported at
        once.
        """
        next_at = self.inbox.next_at
        due = next_at if until is None else min(until, next_at)
        while True:
            wake = min(due, self._monitor.next_check, next_at, self._limits.next_at)
            if self._ends:
                wake = min([wake, *self._due_ends().values()])
            timeout = 0.0 if self._events else max(0.0, wake + self._zero - time.monotonic())
            outcomes = self._workers.wait(timeout)
            now = time.monotonic() - self._zero
            if self._monitor.unresponsive:
                outcomes = self._not_abandoned(outcomes)
            if self._monitor.next_check <= now:
                self._check_responses()
            for outcome in outcomes:
                self._on_reply(outcome)
            if self._limits.next_at <= now:
                self._end_exceeding(now)
            if self._ends:
                for slot, end in list(self._due_ends().items()):
                    if end <= now:
                        self._kill(slot)
            self._jobs.finish_commits()
            if self._drained:
                self._remove_drained()
            self._take_arrivals(now)
            if self._events or due <= now:
                events = self._events.copy()
                self._events.clear()
                return events
            next_at = self.inbox.next_at

    def _forget(self, key: str, folders: tuple[str, ...]) -> None:
        """Drop the runner of a job that is over, and remove its folders on hosts."""
        self._workers.forget(key)

    def _take_arrivals(self, now: float) -> None:
        """Report the jobs that have arrived by now, and handle the entries of the inbox.

        A function of `Ask` sees the state after all earlier entries. Its own events, like a
        change of hosts, are applied to the state before the next entry is taken.
        """
        if self.inbox.next_at > now and not self._deferred.waiting:
            return
        for entry in self.inbox.take(now):
            if isinstance(entry, HostChange):
                self._change_hosts(entry)
                return
            if isinstance(entry, JobsClosed) and self._deferred.waiting:
                self._deferred.closed = entry
            elif isinstance(entry, Request):
                self.on_event(entry)
            elif isinstance(entry, StopTask):
                slot = self._slots.slot_of(entry.phase, entry.task)
                if slot is not None:
                    self._kill(slot)
            elif isinstance(entry, Ask):
                if self._events:  # These are applied to the state first.
                    self.inbox.put_back(entry)
                else:
                    entry.function()
                return
            elif isinstance(entry, DeferredExecution):
                self._deferred.arrive(entry)
            else:
                if entry.job.id not in self._jobs:
                    self._jobs.add(entry)
                self._events.append(JobArrived(entry.job.arrival, entry.job))
                for phase, tasks in entry.done_before.items():
                    self._events.append(TasksDropped(now, PhaseId(entry.job.id, phase), tasks))
                for phase, places in entry.adopted.items():
                    where = PhaseId(entry.job.id, phase)
                    self._events += (
                        TaskAdopted(now, where, task, 1, *place)
                        for task, place in places.items()
                    )
        if self._deferred.waiting:
            self._take_deferred(now)

    def _take_deferred(self, now: float) -> None:
        """Report the deferred jobs whose input has been written, and then the end of jobs."""
        for execution in self._deferred.take(self._jobs, self._workers.wake):
            self._jobs.add(execution)
            self._events.append(JobArrived(now, execution.job))
        if not self._deferred.waiting and self._deferred.closed is not None:
            self._events.append(JobsClosed(now))

    def _apply(self, request: Request) -> None:
        """Add tasks to a job, or close its phase, which may complete the job."""
        if isinstance(request, TasksAdded):
            self._jobs.grow(request.phase, request.count)
        elif isinstance(request, PhaseClosed):
            self._jobs.close_phase(request.phase)

    def _change_hosts(self, change: HostChange, why: str = "was removed") -> None:
        """Start the workers of a host, or kill them: at once, or when its last task has ended.

        A task whose output is being committed is not lost with its host, which is reported as
        drained. No effect on an absent host. SlotwiseError if workers cannot be started; then
        the host is not added.
        """
        slots = self._slots
        if isinstance(change, HostAdded):
            host = change.host
            assert host.name not in slots.of_host, "a host is added once until it leaves"
            numbers = self._begin_host(host)
            slots.add(host, numbers)
            self._monitor.add(host.name, numbers)
        elif change.host not in slots.of_host:
            return
        elif isinstance(change, HostDrained):
            if change.host in self._drained:
                return
            self._drained.add(change.host)
        else:
            is_drained = change.host in self._drained
            self._remove(change.host, why)
            if self._jobs.is_committing(change.host):
                if is_drained:
                    return
                change = HostDrained(change.at, change.host)
        self._events.append(change)

    def _remove(self, host: str, why: str = "was removed") -> None:
        """Kill the workers of a host; its attempts are lost."""
        slots = self._slots
        for slot in slots.on(host, slots.held):
            self._jobs.failed(self._release(slot), f"host {host} {why}", lost=True)
        abandoned = [slots.release_abandoned(s) for s in slots.on(host, slots.abandoned)]
        self._workers.remove(slots.remove(host))
        for launch in abandoned:
            self._jobs.over(launch)
        self._monitor.remove(host)
        self._drained.discard(host)

    def _remove_drained(self) -> None:
        """Remove drained hosts whose last tasks have ended or were lost."""
        for host in sorted(self._drained):
            if not self._slots.on(host, self._slots.held):
                self._remove(host)

    def progress(self, phase: PhaseId, task: int) -> tuple[float, float | None] | None:
        """What a running task has reported. Call it only in the thread of the loop."""
        slot = self._slots.slot_of(phase, task)
        return None if slot is None else self._workers.progress(slot)

    def close(self) -> None:
        """Kill all processes, and remove the output of unfinished jobs. Idempotent."""
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

    def _address(self, host: str) -> str:
        """The address of the agent of a host; empty if it has none."""
        return ""

    def _placed(self, reason: object, host: str) -> object:
        """The reason of a failure, with the name of the host if there can be several."""
        return reason

    def _launch(self, launch: Launch) -> None:
        width = self._jobs.slots_of(launch)
        obstacle, address = self._slots.obstacle(launch.host, width), self._address(launch.host)
        start = self._jobs.begin(launch, obstacle, address)
        if start is None:
            return
        slot = self._slots.take(launch, width, start.account)
        if start.time_limit is not None:
            begun = self.now - start.seconds_before
            self._limits.begin(slot, start.time_limit, start.ending_seconds, begun)
        self._monitor.seconds_stopped.pop(slot, None)
        key, runner = start.runner_key, start.runner
        try:
            conditions = Conditions(
                start.kept,
                start.sleeps,
                start.output,
                launch.devices,
                start.memory,
                start.account,
            )
            self._workers.start(slot, key, runner, start.arguments, conditions)
        except UserCodeError as error:
            self._jobs.failed(self._release(slot), self._placed(str(error), launch.host))

    def _stop(self, preempt: Preempt) -> None:
        """Kill an attempt, or ask it to stop. No effect if it has just ended by itself.

        If several instants were given at which to kill an attempt, the earliest applies.
        """
        slot = self._slots.slot_of(preempt.phase, preempt.task)
        if slot is None or self._slots.held[slot].attempt != preempt.attempt:
            return
        end = -inf if preempt.until is None else preempt.until
        if end <= self.now:
            self._ends[slot] = end
            if slot in self._due_ends():
                self._kill(slot)
        elif end < self._ends.get(slot, inf):
            self._ends[slot] = end
            self._workers.request_stop(slot, self._zero + end)

    def _due_ends(self) -> dict[int, float]:
        """When attempts are killed, by slot; none on a host while it is unresponsive."""
        unresponsive = self._monitor.unresponsive
        if not unresponsive:
            return self._ends
        host_of = self._slots.host_of
        return {s: at for s, at in self._ends.items() if host_of[s].name not in unresponsive}

    def _end_exceeding(self, now: float) -> None:
        """Ask the attempts to stop that have exceeded their time limits, unless they were."""
        for slot, ending_seconds in self._limits.take_due(now, self._ends):
            self._ends[slot] = now + ending_seconds
            if ending_seconds:
                self._workers.request_stop(slot, self._zero + now + ending_seconds)

    def _kill(self, slot: int) -> None:
        self._workers.kill(slot)
        launch, why = self._ended(slot)
        if why:
            self._jobs.failed(launch, self._placed(why, launch.host))
        else:
            self._jobs.killed(launch)

    def _release(self, slot: int) -> Launch:
        """Free the slots of an attempt that is over; returns its launch."""
        return self._ended(slot)[0]

    def _ended(self, slot: int) -> tuple[Launch, str]:
        """The same; returns also why it has failed if it exceeded its time limit, or ""."""
        self._ends.pop(slot, None)
        why = self._limits.end(slot)
        return self._slots.release(slot), why

    def _abandon(self, slot: int, reason: str) -> None:
        """Report the attempt in a slot of an unresponsive host as lost; it may still run."""
        self._ends.pop(slot, None)
        self._limits.end(slot)
        self._jobs.abandoned(self._slots.abandon(slot), reason)

    def _not_abandoned(self, outcomes: list[Reply]) -> list[Reply]:
        """The replies of attempts that are not abandoned.

        A host that replies may be responsive again, so it is checked at once.
        """
        for outcome in outcomes:
            if self._slots.host_of[outcome.slot].name in self._monitor.unresponsive:
                self._monitor.next_check = -inf
            if outcome.slot in self._slots.abandoned:
                self._free_abandoned(outcome.slot)
                outcomes = [one for one in outcomes if one is not outcome]
        return outcomes

    def _check_responses(self) -> None:
        """Report hosts that are now unresponsive, overdue or back; kill stuck workers."""
        now = self.now
        for host, change in self._monitor.check(now):
            if change is ResponseChange.LOST:
                self._events.append(HostLost(now, host))
            elif change is ResponseChange.OVERDUE:
                seconds = self._monitor.seconds(host, now)
                for slot in self._slots.on(host, self._slots.held):
                    self._abandon(slot, f"host {host} has not responded for {seconds:.1f} s")
            else:
                for slot in self._slots.on(host, self._slots.abandoned):
                    self._workers.kill(slot)
                    self._free_abandoned(slot)
                self._events.append(HostJoined(now, host))
        for slot, seconds in self._monitor.stuck(now).items():
            self._workers.kill(slot)
            if slot in self._slots.held:
                reason = f"its worker process has been stopped for {seconds:.1f} s (SIGSTOP)"
                self._jobs.failed(self._release(slot), reason, lost=True, is_own=True)

    def _free_abandoned(self, slot: int) -> None:
        """Free the slot of an abandoned attempt that has ended on its host."""
        self._jobs.over(self._slots.release_abandoned(slot))

    def _on_reply(self, outcome: Reply) -> None:
        if outcome.slot in self._slots.abandoned:  # Its host has just become overdue.
            self._free_abandoned(outcome.slot)
            return
        launch, why = self._ended(outcome.slot)
        if why:
            self._jobs.failed(launch, self._placed(why, launch.host))
            return
        execution = self._jobs[launch.phase.job].execution
        outcome = outcome.opened(unpickles=execution.unpickles)
        if outcome.status == "stopped":
            assert isinstance(outcome.value, bytes | bytearray)
            work = self._computed(execution, outcome) * self._slots.host_of[outcome.slot].speed
            self._jobs.stopped(launch, outcome.value, work)
        elif outcome.status == "done":
            seconds = self._computed(execution, outcome)
            self._jobs.finished(launch, outcome.value, seconds, outcome.peak or None)
        else:
            reason, is_dead = outcome.value, outcome.status in ("lost", "exited", "short")
            if is_dead:
                reason = f"{reason}, in attempt {launch.attempt}"
            reason = self._placed(reason, launch.host)
            is_own, peak = outcome.status == "exited", outcome.peak or None
            self._jobs.failed(launch, reason, lost=is_dead, is_own=is_own, peak=peak)

    def _computed(self, execution: Execution, outcome: Reply) -> float:
        """The seconds of an attempt, less those while it was stopped by another process."""
        stopped = self._monitor.seconds_stopped.pop(outcome.slot, 0.0)
        # A sleep continues while its process is stopped.
        return outcome.seconds - (0.0 if execution.sleeps else min(stopped, outcome.seconds))


class TimeLimits:
    """The time limits of attempts, by slot. They count all time from the start of an attempt.

    next_at  an instant up to which none is exceeded; infinity without limits
    """

    def __init__(self) -> None:
        # Of each attempt: when it exceeds its limit, the limit, and the seconds until its kill.
        self._running: dict[int, tuple[float, float, float]] = {}
        self._exceeded: dict[int, float] = {}
        self.next_at = inf

    def begin(self, slot: int, limit: float, ending_seconds: float, begun: float) -> None:
        """An attempt has begun."""
        self._running[slot] = begun + limit, limit, ending_seconds
        self.next_at = min(self.next_at, begun + limit)

    def end(self, slot: int) -> str:
        """The attempt in a slot is over, or lost; why it failed if it exceeded its limit."""
        self._running.pop(slot, None)
        limit = self._exceeded.pop(slot, None)
        return "" if limit is None else exceeded(limit)

    def take_due(self, now: float, stopping: Container[int]) -> Iterator[tuple[int, float]]:
        """The attempts that exceed their limits now, with their seconds until the kill.

        The limits of those that are `stopping` for other reasons do not matter any more.
        """
        due = [slot for slot, (at, *_) in self._running.items() if at <= now]
        for slot in due:
            _, limit, ending_seconds = self._running.pop(slot)
            if slot not in stopping:
                self._exceeded[slot] = limit
                yield slot, ending_seconds
        self.next_at = min((at for at, *_ in self._running.values()), default=inf)


class DeferredJobs:
    """The jobs that wait to be planned until the jobs before them are over.

    waiting  these jobs; None for those that have not arrived yet
    closed   the end of jobs, if it came while some of them waited
    """

    def __init__(self, given: Iterable[Execution]) -> None:
        """`given` are the jobs that are known from the beginning."""
        self.waiting: dict[str, DeferredExecution | None] = {
            one.job.id: None for one in given if isinstance(one, DeferredExecution)
        }
        self._failed: set[str] = set()
        self.closed: JobsClosed | None = None

    def arrive(self, execution: DeferredExecution) -> None:
        """Add a job at its arrival."""
        self.waiting[execution.job.id] = execution

    def failed(self, job: str) -> None:
        """Note that a job has failed."""
        if self.waiting:
            self._failed.add(job)

    def take(self, under_way: Container[str], wake: Callable[[], None]) -> Iterator[Execution]:
        """Take out the jobs that can be planned now: no job before them is under way.

        A job that fails with one before it is not planned. `wake` is called when a job can be
        taken that takes long to plan.
        """
        for name, execution in list(self.waiting.items()):
            if execution is None:
                continue
            job = execution.job
            if any(one in under_way or one in self.waiting for one in job.predecessors):
                continue
            is_cancelled = job.after_failed == "cancel" and job.predecessors & self._failed
            if not (is_cancelled or execution.is_ready(wake)):
                continue
            del self.waiting[name]
            yield execution if is_cancelled else execution.planned()


class SlotTable:
    """The slots of all hosts, free or held by attempts. Slots are numbers of workers.

    An attempt that occupies several slots runs in one of them; the workers of the others are
    idle. The slot of an abandoned attempt is not free until the attempt has ended.

    of_host    the slots of each host, including hosts without slots
    host_of    the host of each slot
    held       the attempt that runs in a slot
    abandoned  attempts reported as lost that unresponsive hosts may still run, by slot
    """

    def __init__(self) -> None:
        self.of_host: dict[str, list[int]] = {}
        self.host_of: dict[int, Host] = {}
        self.held: dict[int, Launch] = {}
        self.abandoned: dict[int, Launch] = {}
        self._free: dict[str, list[int]] = {}  # by host; the next one is last
        self._idle: dict[int, list[int]] = {}  # the further slots of an attempt
        self._accounts: dict[int, Account | None] = {}  # of the last attempt of a slot

    def add(self, host: Host, slots: Sequence[int]) -> None:
        """Add a host with free slots."""
        self.of_host[host.name] = list(slots)
        self._free[host.name] = list(reversed(slots))
        for slot in slots:
            self.host_of[slot] = host

    def remove(self, host: str) -> list[int]:
        """Remove a host on which no attempt runs; returns its slots."""
        del self._free[host]
        slots = self.of_host.pop(host)
        for slot in slots:
            assert slot not in self.held
            assert slot not in self.abandoned
            del self.host_of[slot]
        return slots

    def obstacle(self, host: str, width: int) -> str:
        """Why no task that occupies `width` slots can start on a host; empty if one can."""
        if host not in self._free:
            return f"{host} is not there"
        free = len(self._free[host])
        if free >= width:
            return ""
        if free:
            return f"fewer than {width} workers of {host} are free"
        return f"no worker of {host} is free"

    def take(self, launch: Launch, width: int, account: Account | None = None) -> int:
        """Assign free slots to an attempt; returns the slot of its worker.

        If there are accounts, it is one whose worker is of the right one, if one is free.
        O(free slots) then.
        """
        free = self._free[launch.host]
        if account is not None or self._accounts:
            fit = (n for n, one in enumerate(free) if self._accounts.get(one) == account)
            slot = free.pop(max(fit, default=-1))
            self._accounts[slot] = account
        else:
            slot = free.pop()
        if width > 1:
            self._idle[slot] = [free.pop() for _ in range(width - 1)]
        self.held[slot] = launch
        return slot

    def release(self, slot: int) -> Launch:
        """Free the slots of an attempt that is over; returns its launch."""
        free = self._free[self.host_of[slot].name]
        free += self._idle.pop(slot, ())
        free.append(slot)
        return self.held.pop(slot)

    def abandon(self, slot: int) -> Launch:
        """Free the slots of an attempt, except the one in which it may still run."""
        launch = self.abandoned[slot] = self.release(slot)
        self._free[self.host_of[slot].name].remove(slot)
        return launch

    def release_abandoned(self, slot: int) -> Launch:
        """Free the slot of an abandoned attempt, which has ended."""
        self._free[self.host_of[slot].name].append(slot)
        return self.abandoned.pop(slot)

    def slot_of(self, phase: PhaseId, task: int) -> int | None:
        """The slot in which a task runs, or None."""
        wanted = (phase, task)
        held = self.held.items()
        return next((s for s, launch in held if (launch.phase, launch.task) == wanted), None)

    def on(self, host: str, slots: Iterable[int]) -> list[int]:
        """The given slots that belong to a host."""
        return [slot for slot in slots if self.host_of[slot].name == host]
