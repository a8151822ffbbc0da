"""Sources: from a workload in any of its forms to the jobs that can be planned or run.

`read_source` accepts a workload in any form. `Source.with_options` applies the options of a
run, once. `Source.jobs` inspects inputs and returns the jobs as schedulers see them.
`Source.executions` returns them as live backends run them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, cast

from slotwise.backends.local.backend import names_hosts
from slotwise.core.cluster import ANY_KIND, Cluster, Host
from slotwise.core.dependencies import check_dependencies, check_elements
from slotwise.core.errors import (
    WHOLE,
    InputError,
    check_name,
    check_path,
    is_whole,
    option_name,
    shown,
)
from slotwise.core.events import HostAdded, HostChange, PoolsChanged, hosts_ever
from slotwise.core.history import read_history
from slotwise.core.job import Job, Phase, PhaseId, Shuffle, Sizes, Tasks
from slotwise.core.loop import Record
from slotwise.core.objective import Objective
from slotwise.core.pools import Pool, PoolTree, Preemption, check_fits
from slotwise.core.rates import COMMAND_MARK, Rates, estimate_rates
from slotwise.core.resources import MEMORY, check_devices, resources_of
from slotwise.core.units import Percent, share_of
from slotwise.jobs.calls import Sleep
from slotwise.jobs.deferred import DeferredExecution
from slotwise.jobs.execution import Execution
from slotwise.workload.file import read_workload
from slotwise.workload.workload import (
    PROPERTIES,
    CommandJob,
    DataflowJob,
    PhasedJob,
    ProgramJob,
    Workload,
    parts_of,
)
from slotwise.workload.workload import Described as Described

# Modules of programs are slow to load, so they are imported only for workloads with programs.

Entry = Job | Described | Execution
"""A job in any of its forms: phases of stated work, a description, or something that runs."""

Planned = ProgramJob | DataflowJob | PhasedJob
"""A job whose input is examined before it begins."""


Slots = int | Mapping[str, int]
"""A number of slots that serve every kind, or a number for each kind."""


class Continuing(Protocol):
    """Continues jobs from stages of an earlier run, and keeps those of this one."""

    def __call__(self, entry: Any, execution: Execution) -> Execution:
        """The execution of a job in place of the one that was planned."""
        ...

    def begin(self, run: Path) -> None:
        """Keep stages as long as the folder of this run."""
        ...


@dataclass(frozen=True, slots=True)
class Source:
    """A workload, and the rates that estimate the work of programs and the speeds of hosts.

    history  the database that the rates are from, which is read once
    file     the path of the workload, or empty if it is not from a file
    stages   continues the planned execution of a job from stages of an earlier run, if any
    records  take down for `--resume` what is completed; empty if nothing does
    """

    workload: Workload
    rates: Rates = field(default_factory=Rates)
    history: str | Path | None = None
    file: str = ""
    stages: Continuing | None = None
    records: Sequence[Record] = ()

    def with_options(
        self,
        *,
        history: str | Path | None = None,
        preemption: Preemption | None = None,
        shuffle: Shuffle | None = None,
        overwrite: bool = False,
        output_suffix: str = "",
        retry_delay: float | None = None,
        time_limit: float | None = None,
    ) -> Source:
        """Return the source with the options of a run in place of those of the workload.

        history        a database of earlier runs, to estimate the work of programs and the
                       speeds of hosts. InputError if it is missing, damaged or newer
        overwrite      programs replace outputs that exist
        output_suffix  is added to the outputs of programs. InputError for a given execution,
                       because it can run only once
        retry_delay, time_limit  those of jobs that do not state them
        """
        check_path("history", history)
        jobs: Iterable[Any] = self.workload.jobs
        if overwrite:
            jobs = [overwriting(job) if isinstance(job, Described) else job for job in jobs]
        if output_suffix:
            jobs = [_with_suffix(job, output_suffix) for job in jobs]
        asked = {"retry_delay": retry_delay, "time_limit": time_limit}
        limits = {name: value for name, value in asked.items() if value is not None}
        if limits:
            jobs = [with_limits(job, limits) for job in jobs]
        workload = replace(
            self.workload,
            jobs=tuple(jobs),
            preemption=preemption or self.workload.preemption,
            shuffle=shuffle or self.workload.shuffle,
        )
        if history in (None, self.history):
            return replace(self, workload=workload)
        rates = estimate_rates(read_history(history))
        return replace(self, workload=workload, rates=rates, history=history)

    def jobs(self, cluster: Cluster | None = None) -> tuple[Job, ...]:
        """The jobs with their phases, as schedulers see them.

        On a cluster they shuffle as in the workload. Without one, in a plan, reduces follow
        after all maps.
        """
        return tuple(self._job(entry, cluster) for entry in self.workload.jobs)

    def executions(
        self, cluster: Cluster, outputs: Mapping[str, Sequence[str]] | None = None
    ) -> list[Execution]:
        """The jobs as live backends run them on this cluster.

        A job that reads what a job before it writes is planned when that is over. `outputs` are
        the folders of other jobs that are under way, by id.
        """
        executions = [
            self._execution(one, cluster, outputs or {}) for one in self.workload.jobs
        ]
        _check_outputs([(one.job.id, path) for one in executions for path in one.outputs])
        return executions

    def _execution(
        self, entry: Entry, cluster: Cluster, outputs: Mapping[str, Sequence[str]]
    ) -> Execution:
        """The execution of a job, with estimates of its work where known."""

        def plan() -> Execution:
            execution = _execution(entry, self.workload, cluster)
            if self.stages is not None:
                execution = self.stages(entry, execution)
            if execution.program:
                job = _expected(execution, self.rates)
                execution.expect(_with_sizes(job, execution.sizes, cluster))
            return execution

        if isinstance(entry, Planned) and self._reads_output(entry, outputs):

            def plan_and_check() -> Execution:
                execution = plan()
                check_fits(execution.job, cluster, self.pools(cluster))
                return execution

            return _deferred(entry, self.workload, plan_and_check)
        return plan()

    def _reads_output(self, entry: Planned, outputs: Mapping[str, Sequence[str]]) -> bool:
        """Whether a job may read what a job before it writes."""
        by_id = {_stated(one).id: one for one in self.workload.jobs}
        names, found = list(entry.predecessors), dict[str, Sequence[str]]()
        for name in names:  # It grows.
            before = by_id.get(name)
            if name in found or (before is None and name not in outputs):
                continue
            found[name] = outputs[name] if before is None else _folders(before, self.workload)
            names += () if before is None else _stated(before).predecessors
        folders = [folder for written in found.values() for folder in written]
        if isinstance(entry, DataflowJob):
            return bool(folders)
        programs = [one for one in parts_of(entry) if isinstance(one, ProgramJob)]
        paths = [_place(path, self.workload) for one in programs for path in one.inputs]
        return any(_is_within(path, folder) for path in paths for folder in folders)

    def unknown_hosts(self, cluster: Cluster, changes: Iterable[HostChange] = ()) -> str:
        """Return an error message if a table of `input_hosts` has an unknown host, or "".

        Known hosts are those of the cluster and those that `changes` add to it.
        """
        known = hosts_ever(cluster, tuple(changes))
        for entry in self.workload.jobs:
            for path, hosts in _tables(entry):
                for name in hosts:
                    if not known.at(name):
                        hosts_known = ", ".join(known.by_name) or "none"
                        return (
                            f"job {_stated(entry).id!r}: input_hosts: {path!r} has {name!r},"
                            f" which is not a host of the cluster; its hosts are {hosts_known}"
                        )
        return ""

    def refuse_unknown_hosts(
        self, cluster: Cluster, changes: Iterable[HostChange] = ()
    ) -> None:
        """Raise InputError if a table of `input_hosts` has an unknown host."""
        if names_hosts(cluster) and (wrong := self.unknown_hosts(cluster, changes)):
            raise InputError(f"{wrong}: correct the name, or add the host to the cluster")

    @contextmanager
    def locating(self) -> Iterator[None]:
        """Begin messages about a job with its place in the workload file."""
        try:
            yield
        except InputError as error:
            place_of, text = self.workload.place_of, str(error)
            named = (_stated(entry).id for entry in self.workload.jobs)
            blamed = next((job for job in named if text.startswith(f"job {job!r}")), None)
            if type(error) is not InputError or place_of is None or blamed is None:
                raise
            raise InputError(f"{place_of(blamed)}{text}") from error

    def refuse_unknown_work(self, jobs: Iterable[Job], what: str) -> None:
        """Raise InputError for a phase without work, which `what` needs."""
        for job, phase in ((one, phase) for one in jobs for phase in one.phases):
            if phase.tasks.work is None:
                raise InputError(
                    f"job {job.id!r}, phase {phase.name!r}: {what} needs its work; state it, or"
                    f" give a {option_name('history')} of an earlier run"
                )

    def believed(self, cluster: Cluster) -> Cluster:
        """The cluster as schedulers assume it: with the speeds of the history."""
        return self.rates.cluster(cluster)

    def unknown(self) -> list[PhaseId]:
        """The phases of programs for which the rates have no estimate."""
        programs = (entry for entry in self.workload.jobs if not isinstance(entry, Job))
        return [
            PhaseId(one.job.id, name)
            for one in map(self._inspected, programs)
            for name in one.sizes
            if one.known_as(name) not in self.rates.by_phase
        ]

    def pools(self, cluster: Cluster) -> PoolTree:
        """The pools on a cluster, including those that are only named by jobs."""
        return self._tree(self.workload.pools, cluster)

    def pool_changes(self, cluster: Cluster) -> tuple[PoolsChanged, ...]:
        """The changes of the pools on a cluster, each with all pools as in `pools`."""
        return tuple(
            replace(change, pools=tuple(self._tree(change.pools, cluster).values()))
            for change in self.workload.pool_changes
        )

    def _tree(self, pools: Iterable[Pool], cluster: Cluster) -> PoolTree:
        named = (_stated(entry).pool for entry in self.workload.jobs)
        tree = PoolTree(pools).with_pools(named).on(cluster)
        preemption = self.workload.preemption
        return tree if preemption is None else tree.with_preemption(preemption)

    @property
    def shuffle(self) -> Shuffle | None:
        """How reduces get the output of maps, or None: after all maps are done.

        A phase that states its own `slow_start` keeps it.
        """
        return self.workload.shuffle

    def cluster(self, cluster: Cluster) -> Cluster:
        """This cluster, with slots for copying if copying has its own slots."""
        return cluster if self.shuffle is None else self.shuffle.cluster(cluster)

    def changes(
        self, cluster: Cluster, changes: Iterable[HostChange]
    ) -> tuple[HostChange, ...]:
        """These changes of the hosts of a cluster, with slots for copying if it has some."""
        if self.shuffle is None:
            return tuple(changes)
        return tuple(
            replace(one, host=self.shuffle.host(one.host, cluster))
            if isinstance(one, HostAdded)
            else one
            for one in changes
        )

    def _job(self, entry: Entry, cluster: Cluster | None) -> Job:
        """A job with its phases, as schedulers see it."""
        if not isinstance(entry, Job):
            return _expected(self._inspected(entry, cluster), self.rates)
        if cluster is None or self.shuffle is None:
            return entry
        return self.shuffle.job(entry, cluster)

    def _inspected(
        self, entry: Described | Execution, cluster: Cluster | None = None
    ) -> Execution:
        """The execution of a job that has one, after its input is inspected."""
        if isinstance(entry, Execution):
            return entry
        # Nothing is written, so an output may exist.
        return _planned(overwriting(entry), self.workload, cluster)


WorkloadLike = Workload | str | Path | Entry | Iterable[Entry] | Source
"""The accepted forms of a workload: a value, the path of a file, a job, or jobs."""


def read_source(
    workload: WorkloadLike,
    *,
    is_live: bool = False,
    defaults: Mapping[str, Any] | None = None,
) -> Source:
    """Return the source of a workload. InputError without jobs, and for repeated ids.

    Dates in a file that states no `start` are for live work, which begins now. `defaults` are
    values of keys that the file may leave out.
    """
    if isinstance(workload, Source):
        return workload
    file = str(workload) if isinstance(workload, str | Path) else ""
    if isinstance(workload, str | Path):
        now = datetime.now() if is_live else None
        workload = read_workload(workload, now=now, defaults=defaults)
    if not isinstance(workload, Workload):
        jobs: Any = workload if isinstance(workload, Iterable) else (workload,)
        workload = Workload(tuple(jobs))
    source = Source(workload, file=file)
    ids = Counter(_stated(entry).id for entry in map(_checked, source.workload.jobs))
    if not ids:
        raise InputError("there are no jobs; give at least one")
    name, number = ids.most_common(1)[0]
    if number > 1:
        raise InputError(f"{number} jobs have the id {name!r}; give each one of its own")
    stated = [_stated(entry) for entry in source.workload.jobs]
    check_dependencies(stated)
    if any(one.after_each for one in stated):
        arrays = {array.id: array for array in _arrays(stated)}
        with source.locating():
            check_elements(arrays.values(), arrays)
    return source


def _arrays(jobs: Iterable[Job | Described]) -> Iterator[Job]:
    """The jobs whose number of tasks is known before they are planned."""
    for one in jobs:
        count = one.settings.get("tasks") or 1 if isinstance(one, CommandJob) else 0
        if isinstance(one, Job):
            yield one
        elif is_whole(count) and count > 0:
            phase = Phase("run", Tasks(count))
            yield Job(one.id, (phase,), after=one.after, after_each=one.after_each)


def with_limits(entry: Entry, limits: Mapping[str, float]) -> Entry:
    """A job with these limits in place of those that it does not state."""
    stated: Any = _stated(entry)
    missing = {name: limits[name] for name in limits if getattr(stated, name) is None}
    if isinstance(entry, Execution):
        entry.job = replace(stated, **missing)
        return entry
    return cast(Entry, replace(stated, **missing))


def objective_of(asked: Objective | str | None, source: Source) -> Objective:
    """The given objective, or the workload's."""
    return source.workload.objective if asked is None else Objective.of(asked)


def cluster_of(
    workload: Workload, slots: Slots | None, resources: Mapping[str, Any] | None = None
) -> Cluster:
    """The cluster to plan for or to simulate: the given slots, or the workload's cluster.

    `resources` are those of a cluster of one host. InputError for a cluster of several.
    """
    if slots is None and names_hosts(workload.cluster):
        refuse_resources(resources, "the hosts of the workload have resources of their own")
        return workload.cluster
    if slots is None:
        cluster = workload.cluster or Cluster.of_slots(processors())
    elif isinstance(slots, Mapping):
        cluster = Cluster((Host("cluster", dict(slots)),))
    elif isinstance(slots, WHOLE) and not isinstance(slots, bool):
        cluster = Cluster.of_slots(int(slots))
    else:
        raise InputError(
            f"{option_name('slots')} is {shown(slots)}; expected a whole number >= 1, or one"
            " for each kind"
        )
    if not (has := resources_of_host(workload, resources)):
        return cluster
    return replace(cluster, hosts=tuple(replace(h, resources=has) for h in cluster.hosts))


def resources_of_host(
    workload: Workload | None, given: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The resources of the only host: the given ones, else what the workload states, by name.

    InputError for amounts that no host has.
    """
    what = option_name("resources")
    check_devices(what, resources_of(what, given or {}), is_host=True)
    cluster = None if workload is None else workload.cluster
    if cluster is None or names_hosts(cluster):
        return dict(given or {})
    return {**cluster.hosts[0].has.stated(), **(given or {})}


def may_request(workload: Workload, resource: str) -> bool:
    """Whether some task of live work may request it. Of an app, it is not known beforehand."""
    entries = map(_stated, workload.jobs)
    return any(
        _may_request(one, resource)
        for entry in entries
        for one in ((entry,) if isinstance(entry, Job) else parts_of(entry))
    )


def _may_request(entry: Job | ProgramJob | CommandJob | DataflowJob, resource: str) -> bool:
    if isinstance(entry, Job):
        return any(resource in phase.needs for phase in entry.phases)
    if isinstance(entry, DataflowJob):
        nodes = entry.flow.get("nodes") if isinstance(entry.flow, Mapping) else None
        return nodes is None or any(resource in (one.get("resources") or ()) for one in nodes)
    stated = entry.settings.get("resources") or {}
    of_kinds = (one for one in stated.values() if isinstance(one, Mapping))
    return resource in stated or any(resource in one for one in of_kinds)


def refuse_resources(given: object, why: str) -> None:
    """InputError if resources are given for a host that there is not."""
    if given is not None:
        raise InputError(f"{option_name('resources')} is for one host, and {why}; leave it out")


def processors() -> int:
    """The number of processors that this process may run on."""
    return len(os.sched_getaffinity(0))


SLOTS_PER_PROCESSOR = 100
"""The most slots of a live run on this machine for each processor: each has a process."""


def check_live_slots(slots: Slots) -> None:
    """InputError for more slots than a run on this machine may have."""
    counts = list(slots.values()) if isinstance(slots, Mapping) else [slots]
    total, cores = sum(filter(is_whole, counts)), processors()
    if total > cores * SLOTS_PER_PROCESSOR:
        raise InputError(
            f"{option_name('slots')} is {shown(total)} for a run on this machine, which has"
            f" {cores} {'processor' if cores == 1 else 'processors'}; give at most"
            f" {cores * SLOTS_PER_PROCESSOR}, {SLOTS_PER_PROCESSOR} for each"
        )


def _checked(entry: Entry) -> Entry:
    """Return the entry. InputError if it is not a job in any form."""
    if isinstance(entry, Job | Described | Execution):
        if isinstance(entry, Described):
            check_name("the id of a job", entry.id)
        return entry
    raise InputError(
        f"{shown(entry)} is not a job; expected one of slotwise.Job(...),"
        " slotwise.mapreduce(...), slotwise.command(...), slotwise.Calls(...) and the job(...)"
        " of a slotwise.Dataflow, or the path of a workload file"
    )


def _stated(entry: Entry) -> Job | Described:
    """The stated properties of a job: its id, pool and so on."""
    return entry if isinstance(entry, Job | Described) else entry.job


def _tables(entry: Entry) -> Iterator[tuple[str, Sequence[str]]]:
    """The hosts that a job states for each path of its input."""
    tables: list[Any] = []
    if isinstance(entry, ProgramJob | PhasedJob):
        tables = [one.settings.get("input_hosts") for one in parts_of(entry)]
    elif isinstance(entry, DataflowJob):
        from slotwise.jobs.dataflow.loading import tables_of

        tables = tables_of(entry.flow)
    for table in tables:
        if isinstance(table, Mapping):
            yield from ((str(path), hosts) for path, hosts in table.items())


def _expected(execution: Execution, rates: Rates) -> Job:
    """The job of an execution, with estimates of the work of its tasks where known."""
    if execution.program:
        job = execution.estimated(rates)
        if execution.program.startswith(COMMAND_MARK):
            return job  # Jobs with the same command may still do different things.
        return replace(job, program=execution.program)
    return execution.job


def _with_sizes(job: Job, sizes: Mapping[str, Sizes], cluster: Cluster) -> Job:
    """The job of a program with the sizes of its tasks where memory is learned from them."""
    has_memory = all(host.resources.get(MEMORY) for host in cluster.hosts)
    if not has_memory or not job.program:
        return job
    phases = []
    for phase in job.phases:
        if phase.name in sizes and MEMORY not in phase.needs:
            of = sizes[phase.name]
            one = of[0] if isinstance(of, tuple) and len(set(of)) == 1 else of
            phase = replace(phase, tasks=replace(phase.tasks, sizes=one))
        phases.append(phase)
    return replace(job, phases=tuple(phases))


def _execution(entry: Entry, workload: Workload, cluster: Cluster) -> Execution:
    if isinstance(entry, Described):
        from slotwise.jobs.commit import check_overwritten
        from slotwise.jobs.formats.files import absolute

        planned = _planned(entry, workload, cluster)
        for one in parts_of(entry):
            if one.settings.get("overwrite") and one.output is not None:
                check_overwritten(absolute(one.output, workload.folder))
        return planned
    return Sleep(_without_copying(entry)) if isinstance(entry, Job) else entry


def _deferred(
    entry: Planned, workload: Workload, plan: Callable[[], Execution]
) -> DeferredExecution:
    """The job with a placeholder for its phases, and when to plan it."""
    phase = Phase("run", Tasks(1))
    if isinstance(entry, ProgramJob):
        from slotwise.jobs.mapreduce.planning import requests_of

        needs = requests_of(entry.id, entry.settings.get("resources"))["map"]
        slots = entry.settings.get("slots") or 1
        phase = Phase("map", Tasks(1), "map", slots=slots, resources=needs)
    about: Any = {name: getattr(entry, name) for name in PROPERTIES}
    about["memory_limit"] = False  # Its requests are not known yet.
    return DeferredExecution(Job(entry.id, (phase,), **about), _folders(entry, workload), plan)


def _folders(entry: Entry, workload: Workload) -> tuple[str, ...]:
    """The folders that a job writes to, without relative parts."""
    if isinstance(entry, Job):
        return ()
    if isinstance(entry, Execution):
        return entry.outputs
    return tuple(_place(one.output, workload) for one in parts_of(entry) if one.output)


def _place(path: str, workload: Workload) -> str:
    """A path without relative parts."""
    from slotwise.jobs.formats.files import absolute

    return absolute(path, workload.folder).rstrip("/")


def _is_within(path: str, folder: str) -> bool:
    """Whether a path, which may be a glob, is in a folder or has it."""
    return f"{path}/".startswith(f"{folder}/") or f"{folder}/".startswith(f"{path}/")


def _without_copying(job: Job) -> Job:
    """The job without early phases: a task that sleeps does not wait for data to copy."""
    phases = (replace(phase, slow_start=1.0) for phase in job.phases)
    return replace(job, phases=tuple(phases))


def _planned(entry: Described, workload: Workload, cluster: Cluster | None) -> Execution:
    about = {name: getattr(entry, name) for name in PROPERTIES}
    if isinstance(entry, PhasedJob):
        from slotwise.jobs.phased import plan_phases

        parts = {one.id: _part(entry, one, workload, cluster) for one in entry.phases}
        return plan_phases(
            entry.id, parts, {one.id: one.after for one in entry.phases}, **about
        )
    about |= {"base_dir": workload.folder, **entry.settings}
    for name, least in ("slots_min", 0), ("slots_max", 1):
        share = share_of(f"job {entry.id!r}: {name}", about.get(name))
        if isinstance(share, Percent):  # Phases of other kinds get as many slots.
            known = cluster or cluster_of(workload, None)
            kind = "map" if isinstance(entry, ProgramJob) else ANY_KIND
            about[name] = known.part(share, kind, least)
    if isinstance(entry, CommandJob):
        from slotwise.jobs.commands import plan_commands

        return plan_commands(entry.id, entry.command, entry.output, **about)
    try:
        if isinstance(entry, DataflowJob):
            from slotwise.jobs.dataflow.planning import plan_dataflow

            return plan_dataflow(entry.id, entry.flow, entry.output, cluster=cluster, **about)
        from slotwise.jobs.mapreduce.planning import plan_mapreduce

        return plan_mapreduce(
            entry.id,
            entry.program,
            entry.inputs,
            entry.output,
            shuffle=None if cluster is None else workload.shuffle,
            cluster=cluster,
            **about,
        )
    except InputError as error:
        where = f"job {entry.id!r}: "
        raise InputError(where + str(error).removeprefix(where)) from None


def _part(
    job: PhasedJob, part: CommandJob | ProgramJob, workload: Workload, cluster: Cluster | None
) -> Execution:
    """The execution of a phase that is a command or a program, in the name of its job."""
    where = f"job {job.id!r}, phase {part.id!r}: "
    apart = "make the program a job of its own, with `after`"
    for path in part.inputs if isinstance(part, ProgramJob) else ():
        for other in job.phases:
            folder = _place(other.output, workload) if other.output else ""
            if folder and other is not part and _is_within(_place(path, workload), folder):
                raise InputError(
                    f"{where}phase {other.id!r} writes its input {path!r}, which is examined"
                    f" when the job begins; {apart}"
                )
    if isinstance(part, CommandJob) and (part.after or job.predecessors):
        part = replace(part, settings={**part.settings, "waits": True})
    try:
        return _planned(replace(part, id=job.id, after=frozenset()), workload, cluster)
    except InputError as error:
        text = str(error).removeprefix(f"job {job.id!r}: ")
        hint = f"; if another phase writes it, {apart}" if text.startswith("input ") else ""
        raise InputError(f"{where}{text}{hint}") from None


def overwriting(entry: Described) -> Described:
    """The job that replaces outputs which exist."""
    if isinstance(entry, PhasedJob):
        phases: Any = tuple(map(overwriting, entry.phases))
        return replace(entry, phases=phases)
    return replace(entry, settings={**entry.settings, "overwrite": True})


def replacing_own(entry: Entry, job: str, folder: Path, since: float) -> Entry:
    """The entry of a job that replaces what the job itself has written since an instant.

    `since` is in Unix seconds. Without it, a job whose process was killed while it committed
    its output could not run again.
    """
    if isinstance(entry, PhasedJob):
        phases: Any = tuple(replacing_own(one, job, folder, since) for one in entry.phases)
        return replace(entry, phases=phases)
    if not isinstance(entry, Described) or entry.output is None:
        return entry
    from slotwise.jobs.commit import is_output_of, place_of

    is_own = is_output_of(job, place_of(entry.output, folder), since)
    return overwriting(entry) if is_own else entry


def _with_suffix(entry: Entry, suffix: str) -> Entry:
    if isinstance(entry, PhasedJob):
        phases: Any = tuple(_with_suffix(one, suffix) for one in entry.phases)
        return replace(entry, phases=phases)
    if isinstance(entry, Job) or (isinstance(entry, Described) and entry.output is None):
        return entry
    if isinstance(entry, Described):
        return replace(entry, output=f"{str(entry.output).rstrip('/')}{suffix}")
    raise InputError(
        f"job {entry.job.id!r} can run once only; compare takes jobs of stated work or"
        " programs (slotwise.mapreduce)"
    )


def _check_outputs(writers: Sequence[tuple[str, str]]) -> None:
    """Raise InputError for outputs that cannot be written, and for nested or equal ones.

    Each output is given with the job that writes it.
    """
    if writers:
        from slotwise.jobs.commit import check_writable

        for job, output in writers:
            check_writable(job, output)
    places = sorted((*_real(output).split("/"), "", job) for job, output in writers)
    for (*outer, _, one), (*inner, _, other) in pairwise(places):
        if inner[: len(outer)] == outer and one == other:
            raise InputError(
                f"job {one!r}: two phases write to the same output {'/'.join(inner)!r}, or one"
                " into the other's; give each one of its own"
            )
        if inner[: len(outer)] == outer:
            raise InputError(
                f"jobs {one!r} and {other!r} write to the same output {'/'.join(inner)!r}, or"
                " one into the other's; give each one of its own"
            )


def _real(output: str) -> str:
    """The place of an output without symbolic links; a URL as it is."""
    return output if "://" in output else os.path.realpath(output)
