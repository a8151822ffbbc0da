"""Jobs, their phases and tasks: the work to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from math import inf
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, dataclass_transform, get_args

from slotwise.core.cluster import ANY_KIND, Cluster, Count, Host, Slots
from slotwise.core.errors import (
    MAX_NUMBER,
    MAX_SECONDS,
    MAX_TIME,
    InputError,
    Limits,
    Part,
    Positive,
    Seconds,
    check_limits,
    check_name,
    check_string,
    is_number,
    is_whole,
    shown,
    suggestion,
)
from slotwise.core.resources import MEMORY, NOTHING, Resources, requested
from slotwise.core.retries import Attempts, RetryDelay, TimeLimit

PRIORITIES: Mapping[str, float] = MappingProxyType(
    {"very_high": 4.0, "high": 2.0, "normal": 1.0, "low": 0.5, "very_low": 0.25}
)
"""Priorities of jobs, and the factor of the weight for each (Hadoop Fair Scheduler)."""

MAX_TASKS = 100_000_000
"""The maximum number of tasks in a phase; larger numbers are treated as mistakes."""

MAX_REDUCERS = 100_000
"""The maximum number of reduces, each of which has its own file."""

MAX_COMMANDS = 100_000
"""The maximum number of tasks of a command, each of which has its own files."""

MAX_BYTES = 10**15
"""The maximum number of bytes of a block: sums of many stay precise."""

AfterFailed = Literal["cancel", "run"]
"""What a job does if one that it waits for fails: it fails, too, or it runs all the same."""

Bytes = Annotated[int, Limits(0, MAX_BYTES, "give a whole number of bytes >= 0", whole=True)]


Sizes = int | tuple[int, ...]
"""The input bytes attributed to each task of a phase: one number for all, or one for each."""


class PhaseId(NamedTuple):
    """The name of one phase of one job."""

    job: str
    phase: str

    def __str__(self) -> str:
        return f"{self.job}/{self.phase}"


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of input and the hosts that hold a copy of it."""

    hosts: frozenset[str]
    size_bytes: Bytes = 0

    def __post_init__(self) -> None:
        if not isinstance(self.hosts, frozenset):  # A list or a set is accepted, too.
            object.__setattr__(self, "hosts", names_of("block: hosts", self.hosts))
        check_limits("block", self)


@dataclass(frozen=True, slots=True)
class Tasks:
    """The tasks of one phase: `count` of them, numbered from 0.

    Equal tasks are stored as one number, so that a phase of a million tasks is one small
    object. `work` is in seconds on a slot of a host of speed 1: the same for each task, one
    number for each, or None if not stated. A task that occupies several slots holds all of
    them for that time. It is an estimate; only the backend has the true
    work. `blocks` is empty (no task prefers a host) or holds one block for each task. `memory`
    estimates what each needs, in bytes; it counts only where the phase requests no memory.
    `peaks` are what a simulation takes for the memory that each really uses, in bytes: one
    number for all, or one for each. Schedulers and logs do not get them. `sizes` are the bytes
    of input of each, likewise: what tasks need of memory is learned by them.
    """

    count: int
    work: float | tuple[float, ...] | None = None
    blocks: Sequence[Block] = ()
    memory: int | None = None
    peaks: Sizes | None = None
    sizes: Sizes | None = None

    def __post_init__(self) -> None:
        for name in ("work", "peaks", "sizes"):
            if isinstance(values := getattr(self, name), Iterable):  # A list is accepted, too.
                object.__setattr__(self, name, tuple(values))
        if not is_whole(self.count):
            raise InputError(f"the number of tasks is {shown(self.count)}; give a whole number")
        if self.count < 1:
            raise InputError(f"a phase needs at least 1 task, not {shown(self.count)}")
        if self.count > MAX_TASKS:
            raise InputError(
                f"the number of tasks is {shown(self.count)}; give at most {MAX_TASKS}"
            )
        if isinstance(self.work, tuple) and len(self.work) != self.count:
            raise InputError(f"{len(self.work)} values of work for {self.count} tasks")
        is_plain = isinstance(self.blocks, list | tuple | str | bytes)
        if not isinstance(self.blocks, Sequence) or (
            is_plain and not all(isinstance(block, Block) for block in self.blocks)
        ):
            raise InputError(f"blocks is {shown(self.blocks)}; give a list of Block objects")
        if len(self.blocks) not in (0, self.count):
            raise InputError(f"{len(self.blocks)} blocks for {self.count} tasks")
        if self.memory is not None and not (is_whole(self.memory) and self.memory >= 0):
            raise InputError(
                f"memory is {shown(self.memory)}; give bytes as a whole number >= 0"
            )
        for value in self.work if isinstance(self.work, tuple) else (self.work,):
            if value is None:
                continue
            if not is_number(value) or not 0 <= value <= MAX_SECONDS:
                raise InputError(
                    f"the work of a task is a number from 0 to {MAX_SECONDS:g}, not"
                    f" {shown(value)}"
                )

        for name, values in (("peaks", self.peaks), ("sizes", self.sizes)):
            self._check_bytes(name, values)

    def _check_bytes(self, what: str, values: Sizes | None) -> None:
        if values is None:
            return
        each = values if isinstance(values, tuple) else (values,)
        if not all(is_whole(one) and one >= 0 for one in each):
            raise InputError(f"{what} is {shown(values)}; give bytes, each a whole number >= 0")
        if isinstance(values, tuple) and len(values) != self.count:
            raise InputError(f"{len(values)} {what} for {self.count} tasks")

    def peak_of(self, task: int) -> int | None:
        """The memory that a task uses in a simulation, in bytes; None if not stated."""
        return self.peaks[task] if isinstance(self.peaks, tuple) else self.peaks

    def size_of(self, task: int) -> int | None:
        """The bytes of input of a task; None if not known."""
        return self.sizes[task] if isinstance(self.sizes, tuple) else self.sizes

    def work_of(self, task: int) -> float | None:
        """The estimated work of one task in seconds; None if not stated."""
        return self.work[task] if isinstance(self.work, tuple) else self.work

    def work_total(self) -> float | None:
        """The estimated work of all tasks in seconds, one slot each; None if not stated."""
        if isinstance(self.work, tuple):
            return sum(self.work)
        return None if self.work is None else self.work * self.count


@dataclass(frozen=True, slots=True)
class Phase:
    """Tasks of one kind that may run in parallel; the unit of allocation.

    Between `slots_min` and `slots_max` slots its speed-up is linear (FLEX 2.5). If `slots_max`
    is None, its number of tasks is the limit. `after` names the phases of the job that must be
    done first.

    slow_start  the part of the tasks of each phase in `after` that must be done before tasks of
                this phase may begin. Below 1, they may begin early: they then hold their slots,
                copy the output that exists, and compute only after all of it exists (Hadoop's
                slow start). It applies only if this phase uses another kind of slot than the
                phases that it waits for: on the same kind it could keep them from finishing.
    copy        seconds that each task needs to copy the output of the phases in `after`, in
                addition to its work, if all of the output exists
    grows       tasks are added while the job is under way, until the phase is closed. All have
                the same work as the first ones in `tasks`, or none is stated
    continues   a phase with the same number of tasks. Task i of this phase continues task i of
                that one: it may begin when that task is done, and only on the host where it ran
    slots       the slots of one host that each task occupies. A task of work w holds them for
                w seconds at speed 1, and so uses w * slots slot-seconds
    gated       each task is blocked until the backend reports that it is runnable, one by one;
                the phase is done when all tasks are done or dropped
    gang        all tasks start together, on one host or on several, or none does. If an attempt
                of one fails, is lost or is killed, all of them are done again
    resources   what each task requests of its host beside slots, by name: `memory` in bytes or
                as a size ("4 GiB"), `gpu` whole or a part of one, and numbers of others. It
                holds all of it from its start to its end
    hosts       the names of the hosts where its tasks may run; empty: on any host
    """

    name: str
    tasks: Tasks
    kind: str = "task"
    after: frozenset[str] = frozenset()
    slots_min: Count = 0
    slots_max: Slots | None = None
    slow_start: Part = 1.0
    copy: Seconds = 0.0
    continues: str | None = None
    grows: bool = False
    slots: Slots = 1
    gang: bool = False
    gated: bool = False
    resources: Mapping[str, Any] = NOTHING
    hosts: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        check_name("the name of a phase", self.name, inf)  # It may be those of many nodes.
        check_name(f"phase {self.name!r}: kind", self.kind)
        if not isinstance(self.tasks, Tasks):
            raise InputError(
                f"phase {self.name!r}: tasks is {shown(self.tasks)}; give Tasks(number, work)"
            )
        check_limits(f"phase {self.name!r}", self)
        for what in ("grows", "gang", "gated"):
            if not isinstance(getattr(self, what), bool):
                raise InputError(
                    f"phase {self.name!r}: {what} is {shown(getattr(self, what))}; give True or"
                    " False"
                )
        # One name, a list or a set is accepted, too.
        after = names_of(f"phase {self.name!r}: after", self.after)
        object.__setattr__(self, "after", after)
        if not isinstance(self.hosts, frozenset) or self.hosts:
            hosts = names_of(f"phase {self.name!r}: hosts", self.hosts)
            object.__setattr__(self, "hosts", hosts)
            if self.continues is not None:
                raise InputError(
                    f"phase {self.name!r} continues {self.continues!r}; leave out `hosts`: it"
                    " begins where the tasks of that phase ran"
                )
        if self.slots_max is not None and self.slots_max < self.slots_min:
            raise InputError(
                f"phase {self.name!r}: slots_min is {self.slots_min}, above slots_max"
                f" {self.slots_max}; lower one or raise the other"
            )
        if self.slots_max is not None and self.slots_max < self.slots:
            raise InputError(
                f"phase {self.name!r}: slots_max is {self.slots_max}, and each task occupies"
                f" {self.slots} slots; lower slots, or raise slots_max to at least {self.slots}"
            )
        if (self.slow_start < 1 or self.copy) and not self.after:
            raise InputError(
                f"phase {self.name!r} copies from no phase; list earlier phases in `after`"
            )
        if self.continues is not None:
            check_string(f"phase {self.name!r}: continues", self.continues)
        if self.continues is not None and (self.after or self.tasks.blocks):
            raise InputError(
                f"phase {self.name!r} continues {self.continues!r}; leave out `after` and"
                " `blocks`: it begins where the tasks of that phase ran"
            )
        is_unequal = any(
            isinstance(one, tuple)
            for one in (self.tasks.work, self.tasks.peaks, self.tasks.sizes)
        )
        if self.grows and (self.continues is not None or self.tasks.blocks or is_unequal):
            raise InputError(
                f"phase {self.name!r} grows; leave out `continues` and `blocks`, and give one"
                " value of work, `peaks` and `sizes` for all tasks, or none"
            )
        if self.gang:
            self._check_gang()
        if self.resources is not NOTHING:
            what = f"phase {self.name!r}: resources"
            object.__setattr__(self, "resources", requested(what, self.resources))
        others = self.grows, self.gang, self.after, self.continues, self.tasks.blocks
        if self.gated and any(others):
            raise InputError(
                f"phase {self.name!r} is gated; leave out `after`, `blocks`, `continues`,"
                " `gang` and `grows`"
            )

    def _check_gang(self) -> None:
        if self.grows or self.continues is not None or self.slow_start < 1:
            raise InputError(
                f"phase {self.name!r} is a gang, whose tasks start together; leave out `grows`,"
                " `continues` and `slow_start`"
            )
        if self.slots_max is not None and self.slots_max < self.unit:
            raise InputError(
                f"phase {self.name!r} is a gang of {self.tasks.count} tasks with {self.slots}"
                f" slots each, and slots_max is {self.slots_max}; give it at least {self.unit},"
                " or leave it out"
            )

    @property
    def needs(self) -> Resources:
        """Its `resources`, as amounts."""
        assert isinstance(self.resources, Resources)
        return self.resources

    @property
    def unit(self) -> int:
        """The slots that it takes at once: those of a task, or of all tasks of a gang."""
        return self.slots * self.tasks.count if self.gang else self.slots

    @property
    def is_gang(self) -> bool:
        """Whether several tasks start together. A gang of one task is like any other phase."""
        return self.gang and self.tasks.count > 1

    @property
    def waits_for(self) -> frozenset[str]:
        """The names of the phases that must be done before it, or before each of its tasks."""
        return self.after if self.continues is None else frozenset({self.continues})

    @property
    def slots_most(self) -> int:
        """The most slots that it can hold at once: `slots_max`, or those of all its tasks.

        It is a multiple of the slots of a task.
        """
        count, slots = self.tasks.count, self.slots
        if self.slots_max is not None:
            count = min(self.slots_max // slots, count)
        return count * slots

    def work_total(self) -> float | None:
        """The estimated work of all tasks in slot-seconds; None if not stated."""
        total = self.tasks.work_total()
        return total if total is None or self.slots == 1 else total * self.slots


@dataclass(frozen=True)
class Job:
    """A DAG of phases; the unit of cost. Times are in seconds on the clock of arrivals.

    `steps` are pairs (time, cost), both increasing: the cost of completing after that time. The
    weight does not affect them. `penalty` names the job's own penalty; None uses that of the
    objective. `priority` affects what the job gets within its pool, not its cost: where jobs
    run in order, it goes before all of lower priority; where they share, it weighs more.
    `program` names what it runs: tasks of jobs of the same program are expected to be alike.

    after         the jobs that must be done before it begins. Until then it holds no slots, no
                  share, and no place among the `jobs_max` of its pools
    after_each    jobs with the same number of tasks, as this job of one phase: task i begins
                  when task i of each of them is done
    after_failed  if one of these jobs fails: "cancel", this job fails, too; "run", it runs
    attempts      how often a task may be tried; None: as the run states
    retry_delay   seconds before the second attempt of a task; see `delay_of` for later ones
    time_limit    seconds for which an attempt may run; then it is stopped and has failed
    time_requested  seconds that an attempt should take at most, for backfilling; one that takes
                  longer runs on
    memory_limit  whether an attempt that uses more memory than it requests is stopped and has
                  failed
    user          whose job it is, for limits of users; None: in live work the account of the
                  process, otherwise nobody
    promise       the date by which it must be done; None: it asks for no promise
    promised      whether that was promised before it arrived
    """

    id: str
    phases: tuple[Phase, ...]
    arrival: Seconds = 0.0
    pool: str = "default"
    weight: Positive = 1.0
    deadline: Seconds | None = None
    steps: tuple[tuple[float, float], ...] = field(default=())
    penalty: str | None = None
    priority: str = "normal"
    program: str = ""
    after: frozenset[str] = frozenset()
    after_each: frozenset[str] = frozenset()
    after_failed: AfterFailed = "cancel"
    attempts: Attempts | None = None
    retry_delay: RetryDelay | None = None
    time_limit: TimeLimit | None = None
    time_requested: TimeLimit | None = None
    memory_limit: bool = False
    user: str | None = None
    promise: Seconds | None = None
    promised: bool = False

    def __post_init__(self) -> None:
        self._check_types()
        if not self.phases:
            raise InputError(f"job {self.id!r} has no phases; give it at least one")
        if self.priority not in PRIORITIES:
            raise InputError(
                f"job {self.id!r}: unknown priority {self.priority!r};"
                f" {suggestion(self.priority, PRIORITIES)}"
            )
        object.__setattr__(self, "steps", checked_steps(self.id, self.steps))
        if len(self.phases) > 1 or self.phases[0].waits_for:
            self._check_order()
        for what in ("after", "after_each"):
            names = getattr(self, what)
            if not isinstance(names, frozenset):  # One name, a list or a set is accepted, too.
                names = names_of(f"job {self.id!r}: {what}", names)
                object.__setattr__(self, what, names)
        if self.after or self.after_each or self.after_failed != "cancel":
            self._check_dependencies()
        if self.memory_limit is not False:
            self._check_memory_limit()

    @property
    def predecessors(self) -> frozenset[str]:
        """The jobs that it waits for, as a whole or task by task."""
        return self.after | self.after_each if self.after_each else self.after

    @property
    def seconds_most(self) -> float | None:
        """The most seconds that an attempt is stated to take: the limit counts, too."""
        stated = [one for one in (self.time_requested, self.time_limit) if one is not None]
        return min(stated, default=None)

    @cached_property
    def share_weight(self) -> float:
        """Its weight for sharing within its pool: `weight` times the factor of its priority."""
        return self.weight * PRIORITIES[self.priority]

    @cached_property
    def by_name(self) -> dict[str, Phase]:
        """Its phases by name."""
        return {phase.name: phase for phase in self.phases}

    @cached_property
    def topological(self) -> tuple[Phase, ...]:
        """Its phases, each after all phases that it waits for, as early as that allows."""
        if not any(phase.waits_for for phase in self.phases):
            return self.phases
        places = {phase.name: place for place, phase in enumerate(self.phases)}
        successors: list[list[int]] = [[] for _ in self.phases]
        waits = [len(phase.waits_for) for phase in self.phases]
        for place, phase in enumerate(self.phases):
            for name in phase.waits_for:
                successors[places[name]].append(place)
        ordered: list[Phase] = []
        ready = [place for place, count in enumerate(waits) if not count]
        while ready:
            ordered += [self.phases[place] for place in ready]
            reached = [later for place in ready for later in successors[place]]
            for place in reached:
                waits[place] -= 1
            ready = sorted({place for place in reached if not waits[place]})
        return tuple(ordered)

    @cached_property
    def work(self) -> float | None:
        """The estimated work of all phases in slot-seconds, if all are known."""
        works = [phase.work_total() for phase in self.phases]
        known = [work for work in works if work is not None]
        return sum(known) if len(known) == len(works) else None

    def with_identity(
        self, name: str, arrival: float, deadline: float | None, program: str = ""
    ) -> Job:
        """The same job with another id, other times and program; these are not checked again.

        It takes a tenth of the time of making and checking a job.
        """
        job = object.__new__(Job)
        changed = {"id": name, "arrival": arrival, "deadline": deadline, "program": program}
        job.__dict__.update(self.__dict__, **changed)
        return job

    def grown(self, phase: str, count: int) -> Job:
        """This job with further tasks in a phase that grows."""
        phases = tuple(
            replace(one, tasks=replace(one.tasks, count=one.tasks.count + count))
            if one.name == phase
            else one
            for one in self.phases
        )
        return replace(self, phases=phases)

    def without_work(self) -> Job:
        """The same job, but no work of its tasks is stated."""
        phases = (replace(one, tasks=replace(one.tasks, work=None)) for one in self.phases)
        return replace(self, phases=tuple(phases))

    def without_peaks(self) -> Job:
        """The same job, but what its tasks use of memory in a simulation is not stated."""
        if all(phase.tasks.peaks is None for phase in self.phases):
            return self
        phases = (replace(one, tasks=replace(one.tasks, peaks=None)) for one in self.phases)
        return replace(self, phases=tuple(phases))

    def _check_types(self) -> None:
        """InputError for a value of a wrong type; a list of phases is accepted, too."""
        check_name("the id of a job", self.id)
        check_name(f"job {self.id!r}: pool", self.pool)
        for what in ("priority", "program"):
            check_string(f"job {self.id!r}: {what}", getattr(self, what))
        if self.penalty is not None:
            check_string(f"job {self.id!r}: penalty", self.penalty)
        if self.user is not None:
            check_name(f"job {self.id!r}: user", self.user)
        check_limits(f"job {self.id!r}", self)
        phases = tuple(self.phases) if isinstance(self.phases, Iterable) else (self.phases,)
        for phase in phases:
            if not isinstance(phase, Phase) or not isinstance(self.phases, Iterable):
                raise InputError(
                    f"job {self.id!r}: phases is {shown(self.phases)}; give a list of Phase"
                    " objects"
                )
        object.__setattr__(self, "phases", phases)

    def _check_memory_limit(self) -> None:
        what = f"job {self.id!r}: memory_limit"
        if self.memory_limit is not True:
            raise InputError(f"{what} is {shown(self.memory_limit)}; give True or False")
        if not any(MEMORY in phase.needs for phase in self.phases):
            raise InputError(
                f"{what} limits tasks to the memory that they request, and none requests any;"
                " state memory under resources, or leave it out"
            )

    def _check_dependencies(self) -> None:
        if self.id in self.predecessors:
            raise InputError(f"job {self.id!r} waits for itself; remove it from `after`")
        if self.after_failed not in get_args(AfterFailed):
            raise InputError(
                f"job {self.id!r}: after_failed is {shown(self.after_failed)}; expected"
                " 'cancel' or 'run'"
            )
        for name in sorted(self.after & self.after_each):
            raise InputError(
                f"job {self.id!r}: after and after_each both name {name!r}; remove one"
            )
        phase = self.phases[0]
        is_plain = not (phase.grows or phase.gated or phase.gang)
        if self.after_each and (len(self.phases) > 1 or not is_plain):
            raise InputError(
                f"job {self.id!r}: after_each is for a job that is one array of tasks; name"
                " the others in after"
            )

    def _check_order(self) -> None:
        names = [phase.name for phase in self.phases]
        if len(self.by_name) < len(names):
            twice = next(name for name, count in Counter(names).items() if count > 1)
            raise InputError(f"job {self.id!r}: two phases are named {twice!r}; rename one")
        for phase in self.phases:
            for other in sorted(n for n in phase.waits_for if n not in self.by_name):
                raise InputError(
                    f"job {self.id!r}: phase {phase.name!r} waits for unknown phase {other!r};"
                    f" {suggestion(other, names)}"
                )
            if any(self.by_name[name].grows for name in phase.waits_for) and (
                phase.slow_start < 1 or phase.continues is not None
            ):
                raise InputError(
                    f"job {self.id!r}: phase {phase.name!r} begins before a phase that grows is"
                    " done; leave out `continues` and `slow_start`"
                )
            gangs = sorted(name for name in phase.waits_for if self.by_name[name].gang)
            if gangs and (phase.slow_start < 1 or phase.continues is not None):
                raise InputError(
                    f"job {self.id!r}: phase {phase.name!r} begins before gang {gangs[0]!r} is"
                    " done, which may have to be done again; leave out `continues` and"
                    " `slow_start`"
                )
            if phase.continues is not None:
                count = self.by_name[phase.continues].tasks.count
                if count != phase.tasks.count:
                    raise InputError(
                        f"job {self.id!r}: phase {phase.name!r} has {phase.tasks.count} tasks"
                        f" and continues {phase.continues!r} with {count}; make them equal"
                    )
        if len(self.topological) < len(names):
            done = {phase.name for phase in self.topological}
            stuck = [name for name in names if name not in done]
            raise InputError(
                f"job {self.id!r}: phases {', '.join(stuck)} wait for each other in a circle;"
                " remove one `after`"
            )


def names_of(what: str, names: object) -> frozenset[str]:
    """A set of names, of one name or of several. InputError for anything else."""
    given = (names,) if isinstance(names, str) else names
    if not isinstance(given, Iterable):
        raise InputError(f"{what} is {shown(names)}; give a list of names")
    found = tuple(given)
    for name in found:
        if not isinstance(name, str):
            raise InputError(f"{what} has {shown(name)}; give names, each a string")
    return frozenset(found)


# Data that is made for each task of a run: as cheap to make as possible.

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def fast_frozen(cls: type[T]) -> type[T]:
    """Like `dataclass(frozen=True, slots=True)`, but only type checks refuse changes.

    Python makes a frozen object in three times the time.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)


# The shuffle: how reduces get the output of maps (slides, problem 4; FLEX 4.2).

REDUCE_KIND = "reduce"
COPY_KIND = "copy"


@dataclass(frozen=True, slots=True)
class Shuffle:
    """When reduces may begin to copy, and whether copying and computing have separate slots.

    slow_start       the part of the maps that must be done before reduces may begin to copy;
                     1: all (Hadoop: 0.05)
    split            copy-compute splitting: copying is a separate phase with its own slots, so
                     that a reduce holds a reduce slot only while it computes
    copies_per_slot  copies that a host may run at once for each of its reduce slots
    copies_per_job   copies that a job may run at once; None: the number of reduce slots
    """

    slow_start: Part = 1.0
    split: bool = False
    copies_per_slot: Slots = 2
    copies_per_job: Slots | None = None

    def __post_init__(self) -> None:
        check_limits("shuffle", self)

    def cluster(self, cluster: Cluster) -> Cluster:
        """The cluster, with slots for copying added if `split` and it has none yet."""
        if not self.split or COPY_KIND in cluster.capacity:
            return cluster
        return replace(cluster, hosts=tuple(self.host(h, cluster) for h in cluster.hosts))

    def host(self, host: Host, cluster: Cluster) -> Host:
        """A host that joins this cluster, with slots for copying if it gives its hosts some."""
        if not self.split or COPY_KIND in cluster.capacity:
            return host
        copies = self.copies_per_slot * host.slots.get(cluster.slot_kind(REDUCE_KIND), 0)
        return replace(host, slots={**host.slots, COPY_KIND: copies})

    def job(self, job: Job, cluster: Cluster) -> Job:
        """The job with this shuffle for its reduces; other phases are unchanged.

        InputError if the name for a split-off copy phase is taken.
        """
        slots = cluster.capacity.get(REDUCE_KIND) or cluster.capacity.get(ANY_KIND, 1)
        phases: list[Phase] = []
        names = {phase.name for phase in job.phases}
        for phase in job.phases:
            if phase.kind != REDUCE_KIND or not phase.after:
                phases.append(phase)
            elif self.split:
                copying, computing = self._split(phase, slots)
                if copying.name in names:
                    raise InputError(
                        f"job {job.id!r}: phase {copying.name!r} has the name that the copying"
                        f" of {phase.name!r} gets when it is split off; rename it"
                    )
                phases += copying, computing
            else:
                phases.append(replace(phase, slow_start=min(phase.slow_start, self.slow_start)))
        return replace(job, phases=tuple(phases))

    def _split(self, phase: Phase, slots: int) -> tuple[Phase, Phase]:
        """A reduce phase as two: one that copies, and one that computes on the same hosts."""
        copying = Phase(
            f"{phase.name}-{COPY_KIND}",
            Tasks(phase.tasks.count, 0.0),
            COPY_KIND,
            phase.after,
            slots_max=self.copies_per_job or slots,
            slow_start=min(phase.slow_start, self.slow_start),
            copy=phase.copy,
        )
        computing = replace(
            phase, after=frozenset(), slow_start=1.0, copy=0.0, continues=copying.name
        )
        return copying, computing


# The steps of a job: instants, and what it costs to complete after them.


def checked_steps(
    job: str, steps: Iterable[Iterable[float]]
) -> tuple[tuple[float, float], ...]:
    """The steps as pairs. InputError for one that is not a pair, or that does not increase."""
    pairs = []
    if not isinstance(steps, Iterable):
        raise InputError(f"job {job!r}: steps is {shown(steps)}; give pairs (seconds, cost)")
    for step in steps:
        try:
            at, cost = step
        except (TypeError, ValueError):
            raise InputError(
                f"job {job!r}: step {shown(step)} is not a pair; give (seconds, cost)"
            ) from None
        if not (is_number(at) and is_number(cost)):
            raise InputError(
                f"job {job!r}: step {shown(step)}; its time and cost must be numbers"
            )
        if not (0 <= at <= MAX_TIME and 0 <= cost <= MAX_NUMBER):
            raise InputError(
                f"job {job!r}: step {shown(step)}; its time and its cost must be >= 0, and at"
                f" most {MAX_TIME:g} and {MAX_NUMBER:g}"
            )
        pairs.append((at, cost))
    for one, other in pairwise(pairs):
        if not (one[0] < other[0] and one[1] < other[1]):
            raise InputError(
                f"job {job!r}: step {other} follows {one}; times and costs must increase"
            )
    return tuple(pairs)


# What was measured of one finished task: the size of its input and how long it took.


@dataclass(frozen=True, slots=True)
class Observation:
    """One finished task of a program.

    bytes    the part of the input of its job that is attributed to it
    host     where it ran
    speed    the stated speed of the host
    seconds  how long it computed
    peak     the most memory that it used, in bytes; None if it was not measured
    """

    program: str
    phase: str
    bytes: int
    host: str
    speed: float
    seconds: float
    peak: int | None = None
