"""The simulated backend: a cluster as a heap of future events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from heapq import heappop, heappush

from slotwise.backends.simulated.attempts import (
    Abandon,
    Attempts,
    BlockReads,
    Deliver,
    Expire,
    Gangs,
    LaunchDeduplicator,
    Lose,
    Losses,
    Order,
    Stop,
    key_of,
)
from slotwise.backends.simulated.simulation import AttemptKey, Reports, Unreachables
from slotwise.backends.simulated.simulation import Fault as Fault
from slotwise.backends.simulated.simulation import Simulation as Simulation
from slotwise.core.cluster import Cluster
from slotwise.core.decisions import GiveUp, Launch, Preempt
from slotwise.core.errors import MAX_TIME, InputError, is_number
from slotwise.core.events import (
    Event,
    HostAdded,
    HostChange,
    HostJoined,
    HostLost,
    HostRemoved,
    JobArrived,
    JobsClosed,
    LaunchDropped,
    OutputLost,
    Request,
    TaskFailed,
    TaskFinished,
    TaskKilled,
    TasksAdded,
    hosts_ever,
    in_order,
)
from slotwise.core.job import Job


class SimulatedBackend:
    """Simulates launches with a heap of events. An event costs O(log of the pending entries).

    Reports of an unreachable host arrive when it is reachable again. Until then its tasks do
    not count as done, also for tasks that copy from them. If its grace ends before, they are
    lost, and their reports are ignored. A decision made meanwhile is executed when the host is
    reachable again: a launch unless its attempt is lost, a kill unless the attempt is done.

    The attempts on a removed host are lost, and its later reports are ignored.
    """

    def __init__(
        self,
        cluster: Cluster,
        jobs: Sequence[Job],
        simulation: Simulation | None = None,
        requests: Sequence[Request] = (),
    ) -> None:
        """Simulate `jobs`, with `requests` of users at their instants."""
        truth = simulation or Simulation()
        truth.check(cluster, jobs)
        changes = in_order(truth.changes or ())
        ever = hosts_ever(cluster, changes)
        self.now = 0.0
        self._simulation, self._grace = truth, cluster.grace
        self._reports = Reports(ever)
        self._unreachable = Unreachables(truth.outages, self._reports)
        self._tracks_hosts = bool(truth.outages or changes)
        self._is_steady = not self._tracks_hosts and truth.repeats is None
        self._absent = ever.by_name.keys() - cluster.by_name.keys()
        self._unresponsive: set[str] = set()  # as reported
        grown = list(_grown(jobs, requests))
        self._attempts = Attempts(
            ever, grown, truth, self._unreachable, self._schedule, self._order, self._absent
        )
        self._reading, self._copies = self._attempts.reading, self._attempts.copies
        self._begun, self._gangs = LaunchDeduplicator(grown), Gangs(jobs)
        self._hosts: dict[AttemptKey, str] = {}  # of running attempts, if hosts are tracked
        self._killed: set[AttemptKey] = set()  # Their next entries in the heap are ignored.
        self._stop_requested: set[AttemptKey] = set()
        self._heap: list[tuple[float, int, Event | Order]] = []
        self._counter = 0
        self._losses = None if truth.loss is None else Losses(jobs, truth.loss)
        # The number of heap entries that need handling before they are returned. If hosts or
        # memory are tracked, outputs are lost or there are gangs, any entry may.
        tracks = self._tracks_hosts or self._losses is not None or self._attempts.memory
        self._odd = int(bool(tracks or self._gangs))
        for job in sorted(jobs, key=lambda job: job.arrival):
            self._schedule(job.arrival, JobArrived(job.arrival, truth.told(job)))
        for request in requests:
            self._schedule(request.at, request)
        if not any(isinstance(request, JobsClosed) for request in requests):
            last = max((job.arrival for job in jobs), default=0.0)
            self._schedule(last, JobsClosed(last))
        for change in changes:
            self._schedule(change.at, change)
        self._schedule_outages()

    def perform(self, decision: Launch | Preempt | GiveUp) -> None:
        """Begin an attempt, ask one to stop, or record that a job was given up.

        An attempt that was launched before does not begin again. InputError if `repeats`
        returns an invalid number.
        """
        if isinstance(decision, Launch):
            if not self._begun.is_new(decision):
                self._order(self.now, Deliver(decision.host, decision, is_repeated=True))
            elif self._is_steady:
                self._attempts.begin(decision, self.now)
            else:
                self._send(decision)
        elif isinstance(decision, Preempt):
            self._preempt(decision)
        else:
            self._gangs.give_up(decision.job)
            if self._losses is not None:
                self._losses.give_up(decision.job)

    def wait(self, until: float | None) -> Sequence[Event]:
        """Advance the clock to the next events, or to `until` if they are later."""
        heap = self._heap
        while True:
            if self._reading:
                self._read(self._reading, until)
            if until is not None and (not heap or until < heap[0][0]):
                self.now = until
                return ()
            assert heap, "jobs wait, but there are no more events"
            at, _, entry = heappop(heap)
            self.now, entries = at, [entry]
            while heap and heap[0][0] == at:
                entries.append(heappop(heap)[2])
            if self._odd:
                entries = list(self._with_gangs(self._carry_out(entries)))
                if not entries:
                    continue  # Nothing is visible to the scheduler.
            if self._copies:
                self._attempts.start_copiers(entries, at)
            return entries  # type: ignore[return-value]  # No orders are left.

    def _read(self, reading: BlockReads, until: float | None) -> None:
        """Continue the attempts that have their blocks before the next entry of the heap."""
        while (at := reading.next_end()) is not None:
            if (until is not None and until < at) or (self._heap and self._heap[0][0] < at):
                return
            self._attempts.read(reading, at)

    def _schedule(self, at: float, event: Event) -> None:
        self._counter += 1
        heappush(self._heap, (at, self._counter, event))

    # Orders, and events that need handling.

    def _order(self, at: float, order: Order) -> None:
        self._counter += 1
        self._odd += 1
        heappush(self._heap, (at, self._counter, order))

    def _carry_out(self, entries: Sequence[Event | Order]) -> Iterator[Event]:
        """Execute orders, and delay messages of unreachable hosts; the events to return."""
        for entry in entries:
            if isinstance(entry, Order):
                self._odd -= 1
                if isinstance(entry, Lose):
                    yield from self._lose(entry)
                elif not self._unreachable or not self._put_off(entry, entry.host):
                    yield from self._execute(entry)
            elif isinstance(entry, TaskFinished | TaskFailed):
                key = key_of(entry)
                if key in self._killed:
                    self._pass_over(key)
                elif not self._hosts or not self._put_off(entry, self._hosts[key]):
                    self._stop_requested.discard(key)
                    self._hosts.pop(key, None)
                    ended = self._attempts.memory.end(entry)
                    if self._losses is not None and isinstance(ended, TaskFinished):
                        self._find_loss(self._losses, ended)
                    yield ended
            elif isinstance(entry, HostLost | HostJoined | HostChange):
                yield from self._change_hosts(entry)
            else:
                yield entry

    def _with_gangs(self, events: Iterable[Event]) -> Iterator[Event]:
        """The events after `Gangs.follow`, with the output that broken gangs lose."""
        for given in events:
            for event in self._gangs.follow(given):
                if isinstance(event, OutputLost):
                    for task in event.tasks:
                        self._attempts.lose(event.phase, task)
                    if self._losses is not None:
                        self._losses.undo(event.phase, len(event.tasks))
                yield event

    def _execute(self, order: Stop | Deliver | Expire | Abandon) -> Sequence[Event]:
        if isinstance(order, Stop):
            return self._stop(order)
        if isinstance(order, Expire):
            failed = self._attempts.expired(order.key, self.now)
            if failed is not None:
                self._cancel(order.key)
            return () if failed is None else (failed,)
        if isinstance(order, Deliver):
            return self._deliver(order)
        if order.host not in self._unresponsive:
            return ()  # The host was removed.
        return self._lose_attempts(
            order.host, f"host {order.host} has not responded for more than {self._grace:g} s"
        )

    def _find_loss(self, losses: Losses, event: TaskFinished) -> None:
        """Schedule the loss of the output of a task that has just ended, if it is lost."""
        seconds = None if self._gangs.is_void(event) else losses.seconds_after(event)
        if seconds is not None:
            self._order(self.now + seconds, Lose(event.phase, event.task))

    def _lose(self, loss: Lose) -> Sequence[Event]:
        assert self._losses is not None
        if loss.phase in self._gangs and not self._gangs.is_done(loss.phase, loss.task):
            return ()  # The task is repeated anyway.
        if not self._losses.matters(loss.phase):
            return ()
        return (OutputLost(self.now, loss.phase, (loss.task,)),)

    def _preempt(self, decision: Preempt) -> None:
        """Stop an attempt: now, when it has saved its work, or at the end of its grace.

        An attempt that is done by then ends normally.
        """
        key, of_gang = key_of(decision), decision.phase in self._gangs
        if key in self._stop_requested and not (of_gang and decision.until is None):
            return
        back = self._unreachable.through(decision.host, self.now)
        if back > self.now:
            self._order(back, Deliver(decision.host, decision))
            return
        kept, at = 0.0, self.now
        if decision.until is not None:
            at, saves = max(at, decision.until), self._simulation.save_seconds
            computed = None if of_gang else self._computed(key, decision.host)
            if saves is not None and self.now + saves <= at and computed is not None:
                at, kept = self.now + saves, computed
        self._stop_requested.add(key)
        self._order(at, Stop(key, decision.host, kept))

    def _computed(self, key: AttemptKey, host: str) -> float | None:
        """The work that a running attempt has done, at speed 1; None if it will not succeed.

        O(pending entries), since few attempts are ever asked to stop.
        """
        for _, _, entry in self._heap:
            if isinstance(entry, TaskFinished) and key_of(entry) == key:
                return self._attempts.computed(entry, host, self.now)
        return None

    def _stop(self, stop: Stop) -> Sequence[Event]:
        if stop.key not in self._stop_requested:
            return ()
        phase, task, attempt = stop.key
        self._cancel(stop.key)
        self._attempts.durations.keep(phase, task, stop.kept)
        return (TaskKilled(self.now, phase, task, attempt, stop.kept),)

    def _cancel(self, key: AttemptKey) -> None:
        """Suppress all further events of a running attempt."""
        phase, task, _ = key
        self._stop_requested.discard(key)
        self._hosts.pop(key, None)
        self._begun.take_back(phase, task)
        if not self._attempts.give_up(key, self.now):
            self._killed.add(key)
            self._odd += 1

    def _pass_over(self, key: AttemptKey) -> None:
        self._killed.remove(key)
        self._odd -= 1

    # Unresponsive hosts, and repeated messages.

    def _schedule_outages(self) -> None:
        for span in self._unreachable:
            if span.noticed is not None:
                host, given_up = span.host, span.noticed + self._grace
                self._schedule(span.noticed, HostLost(span.noticed, host))
                if given_up < span.back:
                    self._order(given_up, Abandon(host))
                self._schedule(span.back, HostJoined(span.back, host))

    def _send(self, launch: Launch) -> None:
        """Send a launch to a host; it may arrive later, or twice."""
        host, repeats = launch.host, self._simulation.repeats
        arrives = self._unreachable.through(host, self.now)
        if self._tracks_hosts:
            self._hosts[key_of(launch)] = host
        if arrives > self.now:
            self._order(arrives, Deliver(host, launch))
        else:
            self._attempts.begin(launch, self.now)
        later = repeats(launch) if repeats else None
        if later is not None:
            if not is_number(later) or not 0 <= later <= MAX_TIME:
                raise InputError(
                    f"repeats returns {later} for {launch}; expected seconds >= 0, or None"
                )
            again = Deliver(host, launch, is_repeated=True)
            self._order(self._reports.next(host, self.now + later), again)

    def _deliver(self, order: Deliver) -> Sequence[Event]:
        """Execute a decision that was delayed, or drop a repeated launch."""
        decision, key = order.decision, key_of(order.decision)
        if isinstance(decision, Preempt):
            if key in self._hosts:
                self._preempt(decision)
        elif order.is_repeated:
            return self._drop(decision, self._why_dropped(decision))
        elif key in self._killed:
            self._pass_over(key)
            return self._drop(decision, "was taken back")
        else:
            self._attempts.begin(decision, self.now)
        return ()

    def _drop(self, launch: Launch, reason: str) -> Sequence[Event]:
        if launch.host in self._absent:
            return ()
        return (LaunchDropped(self.now, *key_of(launch), launch.host, reason),)

    def _why_dropped(self, launch: Launch) -> str:
        """The reason why a host drops a repeated launch."""
        if self._is_under_way(key_of(launch)):
            return "runs already"
        if self._attempts.fails(launch):
            return "has failed"
        return "was taken back" if self._begun.was_taken_back(launch) else "is done"

    def _is_under_way(self, key: AttemptKey) -> bool:
        """Whether an attempt has begun and not ended. O(pending entries)."""
        if key in self._killed:
            return False
        ends = (entry for _, _, entry in self._heap)
        return self._attempts.is_waiting(key) or any(
            isinstance(end, TaskFinished | TaskFailed) and key_of(end) == key for end in ends
        )

    def _put_off(self, entry: TaskFinished | TaskFailed | Order, host: str) -> bool:
        """Delay an entry until its host is reachable; False if it is reachable now."""
        back = self._unreachable.through(host, self.now)
        if back == self.now or isinstance(entry, Abandon):
            return False
        if isinstance(entry, TaskFinished | TaskFailed):
            self._schedule(back, replace(entry, at=back))
        else:
            self._order(back, entry)
        return True

    def _change_hosts(self, event: HostLost | HostJoined | HostChange) -> Sequence[Event]:
        """Apply a change of a host; returns the events for the scheduler."""
        if isinstance(event, HostAdded):
            self._absent.discard(event.host.name)
            self._attempts.add(event.host)
        elif isinstance(event, HostRemoved):
            self._absent.add(event.host)
            self._unresponsive.discard(event.host)
            return *self._lose_attempts(event.host, f"host {event.host} was removed"), event
        elif isinstance(event, HostLost):
            if event.host in self._absent:
                return ()
            self._unresponsive.add(event.host)
        elif isinstance(event, HostJoined):
            if event.host not in self._unresponsive:
                return ()
            self._unresponsive.remove(event.host)
        return (event,)

    def _lose_attempts(self, host: str, reason: str) -> list[Event]:
        """Cancel all attempts on a host; returns their failures."""
        lost = [key for key, where in self._hosts.items() if where == host]
        for key in lost:
            self._cancel(key)
        return [TaskFailed(self.now, *key, reason, lost=True) for key in lost]


def _grown(jobs: Sequence[Job], requests: Sequence[Request]) -> Iterator[Job]:
    """The jobs with all tasks that requests add to them."""
    added: dict[str, list[TasksAdded]] = {}
    for request in requests:
        if isinstance(request, TasksAdded):
            added.setdefault(request.phase.job, []).append(request)
    for job in jobs:
        for one in added.get(job.id, ()):
            job = job.grown(one.phase.phase, one.count)
        yield job
