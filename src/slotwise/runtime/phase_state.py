"""One phase as it goes on: which tasks wait, run and are done, and what was seen of them."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from slotwise.estimation.extrapolation import work_left
from slotwise.model.cluster import Cluster
from slotwise.model.decision import Launch
from slotwise.model.job import Job, Phase, PhaseId
from slotwise.model.pool import Pool

PENDING, RUNNING, DONE = 0, 1, 2

Rank = tuple[float, float, int, "PhaseState"]
"""How far a phase is below its allocation: the least one is served first."""


class PoolCount:
    """Slots that a pool holds of one kind, the most that it may hold, the least it is owed."""

    __slots__ = ("least", "most", "running", "share_key")

    def __init__(self, pool: Pool, share: str) -> None:
        self.share_key = (pool.name, share)
        self.least = pool.slots_min.get(share, 0)
        self.most = pool.slots_max.get(share, inf)
        self.running = 0


class PhaseState:
    """A phase in progress. It changes through its methods only, and each is O(1).

    Tasks are kept as one byte each plus an index from hosts and racks to the tasks whose input
    lies there. The index is cleaned as it is read, so a launch costs nothing for the other
    places that hold the same block.
    """

    __slots__ = (
        "_by_host",
        "_by_rack",
        "_cluster",
        "_cursor",
        "_each",
        "_elapsed_base",
        "_expected_finished",
        "_expected_running",
        "_expected_total",
        "_observed",
        "_returned",
        "_running_speed",
        "_status",
        "_tries",
        "_works",
        "allocated",
        "deferred_since",
        "deferred_until",
        "done",
        "has_homes",
        "id",
        "is_ready",
        "job",
        "launches",
        "most",
        "order",
        "pending",
        "phase",
        "pool",
        "rank",
        "running",
        "served",
        "share_key",
        "slot_kind",
        "waits_for",
    )

    def __init__(
        self,
        job: Job,
        phase: Phase,
        order: int,
        pool: PoolCount,
        cluster: Cluster,
        default_work: float,
    ) -> None:
        count = phase.tasks.count
        self.id = PhaseId(job.id, phase.name)
        self.job, self.phase, self.order, self.pool = job, phase, order, pool
        self.share_key = pool.share_key
        self.slot_kind = cluster.slot_kind(phase.kind)
        self.most = phase.slots_most
        self.waits_for = set(phase.after)
        self.pending, self.running, self.done = count, 0, 0
        self.is_ready = False
        self.allocated = 0.0
        self.served = 0.0
        self.deferred_since: float | None = None
        self.deferred_until: float | None = None
        self.launches: dict[int, tuple[Launch, float, float]] = {}
        self.rank: Rank | None = None
        self._status = bytearray(count)
        self._cursor = 0
        self._returned: list[int] = []
        self._tries: dict[int, int] = {}
        work = phase.tasks.work
        self._works = work if isinstance(work, tuple) else None
        self._each = work if isinstance(work, float | int) else default_work
        self._expected_total = self._each * count if self._works is None else sum(self._works)
        self._expected_finished = self._observed = 0.0
        self._expected_running = self._running_speed = self._elapsed_base = 0.0
        self._cluster = cluster
        self.has_homes = bool(phase.tasks.blocks)
        self._by_host: dict[str, list[int]] = {}
        self._by_rack: dict[str, list[int]] | None = None
        if self.has_homes:  # The lowest task is last in each list, to be launched first.
            self._index_homes(range(count - 1, -1, -1))

    @property
    def may_launch(self) -> bool:
        """Whether one more slot would break neither its own most share nor its pool's."""
        return self.running < self.most and self.pool.running < self.pool.most

    @property
    def has_shrunk(self) -> bool:
        """Whether it can use less than it was allocated, or than a guarantee is worth."""
        demand = self.pending + self.running
        # What a pool's guarantee is worth may change with any of its tasks.
        return demand < self.allocated or demand < self.phase.slots_min or self.pool.least > 0

    @property
    def is_limited(self) -> bool:
        """Whether its pool has a most share."""
        return self.pool.most < inf

    def next_task(self) -> tuple[int, int]:
        """The pending task to launch next anywhere, and the number of that attempt."""
        status = self._status
        while self._returned:
            if status[self._returned[-1]] == PENDING:
                return self._numbered(self._returned[-1])
            self._returned.pop()
        self._cursor = status.index(PENDING, self._cursor)
        return self._numbered(self._cursor)

    def next_task_on(self, hosts: Iterable[str]) -> tuple[int, int, str] | None:
        """The same among the tasks whose input lies on one of these hosts, and that host."""
        if not self.has_homes:
            return *self.next_task(), next(iter(hosts))
        by_host = self._by_host
        for host in hosts:
            tasks = by_host.get(host)
            if tasks:
                found = self._last_pending(tasks)
                if found:
                    return *found, host
        return None

    def next_task_in(self, rack: str) -> tuple[int, int] | None:
        """The same among the tasks whose input lies in this rack."""
        if self._by_rack is None:
            self._by_rack = self._index_racks()
        tasks = self._by_rack.get(rack)
        return self._last_pending(tasks) if tasks else None

    def work_left(self, now: float) -> float:
        """Estimated work of the tasks that are not done, in seconds at speed 1, above 0."""
        finished, running = self._expected_finished, self._expected_running
        return work_left(
            expected_pending=max(0.0, self._expected_total - finished - running),
            expected_running=running,
            expected_finished=finished,
            observed=self._observed,
            elapsed=max(0.0, self._running_speed * now - self._elapsed_base),
        )

    def launch(self, launch: Launch, now: float, speed: float) -> None:
        """A pending task now runs."""
        task = launch.task
        assert self._status[task] == PENDING, "only a pending task is launched"
        assert launch.attempt == self._tries.get(task, 0) + 1, "attempts are numbered in order"
        self._status[task] = RUNNING
        self.launches[task] = (launch, now, speed)
        self.pending -= 1
        self.running += 1
        self.deferred_since = self.deferred_until = None
        self._expected_running += self._expected(task)
        self._running_speed += speed
        self._elapsed_base += speed * now

    def end(self, task: int, attempt: int) -> tuple[Launch, float] | None:
        """A running attempt is over; its launch and the speed of its host.

        None if no such attempt runs: the message was late, or came twice.
        """
        entry = self.launches.get(task)
        if entry is None or entry[0].attempt != attempt:
            return None
        del self.launches[task]
        launch, started, speed = entry
        self.running -= 1
        if self.running:
            self._expected_running -= self._expected(task)
            self._running_speed -= speed
            self._elapsed_base -= speed * started
        else:  # The sums start afresh, so that rounding never piles up.
            self._expected_running = self._running_speed = self._elapsed_base = 0.0
        return launch, speed

    def finish(self, task: int, work: float) -> None:
        """A task that has ended is done; it took so much work, in seconds at speed 1."""
        self._status[task] = DONE
        self.done += 1
        self._expected_finished += self._expected(task)
        self._observed += work

    def put_back(self, task: int) -> None:
        """A task that has ended without a result is pending again."""
        self.deferred_since = self.deferred_until = None
        self._status[task] = PENDING
        self._tries[task] = self._tries.get(task, 0) + 1
        self.pending += 1
        self._returned.append(task)
        if self.has_homes:
            self._index_homes((task,))

    def ranked(self) -> Rank:
        """Its place in the order: served first is who holds the least part of its allocation.

        Whole slots come first. Parts of slots go by turns: who has had the least service for
        the size of its allocation is next, so that half a slot is a slot half of the time. Who
        has no allocation comes last, by arrival.
        """
        if self.allocated <= 0:
            return (inf, self.order, self.order, self)
        held = self.running / self.allocated
        if self.running < int(self.allocated):
            held -= 1.0
        elif held < 1.0:
            held = 0.0
        return (held, self.served, self.order, self)

    def serve(self, service: float) -> float:
        """Count a launch as service received; the service that others have had by now.

        `service` is what phases that won their turns had had. Who comes late, or has had no
        tasks for a while, begins there: it neither pays for the past nor makes up for it.
        """
        if self.allocated <= 0:
            return service
        if self.running > int(self.allocated):  # It has just won a part of a slot.
            service = max(service, self.served)
        self.served = max(self.served, service) + 1.0 / self.allocated
        return service

    def check(self) -> None:
        """Assert that its counters say what its tasks say. O(tasks); for tests."""
        status = self._status
        assert self.pending == status.count(PENDING)
        assert self.running == status.count(RUNNING) == len(self.launches)
        assert self.done == status.count(DONE)
        assert self.running <= self.most, "a phase never exceeds its most share"
        assert not self.running or not self.waits_for, "no task runs before its phase is ready"

    def _numbered(self, task: int) -> tuple[int, int]:
        return task, self._tries.get(task, 0) + 1 if self._tries else 1

    def _last_pending(self, tasks: list[int]) -> tuple[int, int] | None:
        """The last pending task of a list, which is cleared of others on the way."""
        while tasks:
            if self._status[tasks[-1]] == PENDING:
                return self._numbered(tasks[-1])
            tasks.pop()
        return None

    def _expected(self, task: int) -> float:
        return self._each if self._works is None else self._works[task]

    def _index_homes(self, tasks: Iterable[int]) -> None:
        """Note where the input of pending tasks lies; a second note of one does no harm."""
        blocks, index = self.phase.tasks.blocks, self._by_host
        for task in tasks:
            for host in blocks[task].hosts:
                if host in index:
                    index[host].append(task)
                else:
                    index[host] = [task]
            if self._by_rack is not None:
                self._index_rack(self._by_rack, task)

    def _index_racks(self) -> dict[str, list[int]]:
        """Note the racks of all pending tasks. Few phases are ever asked for them."""
        index: dict[str, list[int]] = {}
        for task in range(self.phase.tasks.count - 1, -1, -1):
            if self._status[task] == PENDING:
                self._index_rack(index, task)
        return index

    def _index_rack(self, index: dict[str, list[int]], task: int) -> None:
        rack_of = self._cluster.rack_of
        hosts = self.phase.tasks.blocks[task].hosts
        for rack in {rack_of[host] for host in hosts if host in rack_of}:
            index.setdefault(rack, []).append(task)
