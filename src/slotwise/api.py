"""The functions simulate, run, compare, replay and explain, which combine all parts.

Each takes a workload (a `Workload`, the path of a workload file, or a list of jobs) or a log,
and returns a value. Bad input raises InputError, with place, value and remedy, before anything
starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

from slotwise.backends.local.backend import emulated, names_hosts
from slotwise.backends.simulated.simulation import Simulation
from slotwise.core.cluster import Cluster, Network
from slotwise.core.decisions import Locality
from slotwise.core.errors import InputError, check_type, is_number, option_name, shown
from slotwise.core.events import HostAdded, with_kinds
from slotwise.core.history import HistoryWriter
from slotwise.core.log import Log, following
from slotwise.core.resources import GPU
from slotwise.done_record import DoneRecord
from slotwise.insight.report import page
from slotwise.jobs.execution import Execution
from slotwise.results import Result, Results, RunInterrupted, RunStopped
from slotwise.resume import DoneRecorder, Verdict, remaining, verdicts
from slotwise.run_folder import Keep
from slotwise.running import (
    Options,
    RunOptions,
    RunSpec,
    check_file,
    checked_names,
    existing,
    warn_user,
)
from slotwise.sources import (
    Slots,
    Source,
    WorkloadLike,
    check_live_slots,
    cluster_of,
    may_request,
    processors,
    read_source,
    refuse_resources,
    resources_of_host,
)
from slotwise.workload.workload import DataflowJob, ProgramJob

if TYPE_CHECKING:  # Functions import what only they need, so that commands start faster.
    from slotwise.backends.attempt_logs import AttemptLogs
    from slotwise.backends.live import LiveBackend
    from slotwise.insight.explanation import Explanation
    from slotwise.insight.intervals import JobExplained, WorstWaits
    from slotwise.insight.replay import Replay


def simulate(
    workload: WorkloadLike,
    scheduler: str = "flex",
    *,
    simulation: Simulation | None = None,
    slots: Slots | None = None,
    resources: Mapping[str, Any] | None = None,
    history: str | Path | None = None,
    **options: Unpack[Options],
) -> Result:
    """Simulate a workload task by task on its cluster. The same input gives the same result.

    A `history` (a database of earlier runs) gives the estimated work of programs and the host
    speeds that the scheduler assumes; the simulated hosts have the stated speeds. The history
    is not changed. With `simulation=Simulation(hide_work=True)` the scheduler gets no work of
    tasks, stated or from the history: it only measures finished tasks. `slots`, and `resources`
    such as `{"memory": "6 GiB"}`, are those of a cluster of one host, in place of the stated.
    """
    given = RunOptions.of(options, simulate)
    given.check_files(history)
    source = _source(workload, given, history)
    with source.locating():
        return _simulate(source, scheduler, simulation, slots, resources, given)


def _simulate(
    source: Source,
    scheduler: str,
    simulation: Simulation | None,
    slots: Slots | None,
    resources: Mapping[str, Any] | None,
    options: RunOptions,
) -> Result:
    from slotwise.backends.simulated.backend import SimulatedBackend
    from slotwise.backends.simulated.many_tasks import TASKS_MANY, Duration, check_memory
    from slotwise.core.placement import place_blocks

    remedy = "expected a slotwise.Simulation, such as slotwise.Simulation(seed=1)"
    check_type("simulation", simulation, Simulation | None, remedy)
    truth = simulation or Simulation()
    if truth.network is None:
        truth = replace(truth, network=source.workload.network)
    stated = cluster_of(source.workload, slots, resources)
    if truth.changes is None:  # The changes of the workload are for its own cluster.
        truth = replace(truth, changes=source.workload.changes if slots is None else ())
    changes = source.changes(stated, truth.changes or ())
    truth = replace(truth, changes=changes)
    cluster = with_kinds(source.cluster(stated), changes)
    truth.check(cluster)
    source.refuse_unknown_hosts(cluster, changes)
    jobs = source.jobs(cluster)
    truth.check(cluster, jobs)
    source.refuse_unknown_work(jobs, "a simulation")
    tasks = sum(phase.tasks.count for job in jobs for phase in job.phases)
    check_memory(tasks, has_log=options.log is not None)
    placement = source.workload.placement
    if placement is not None:
        jobs = place_blocks(
            jobs,
            cluster,
            placement.replicas,
            truth.seed,
            policy=placement.policy,
            block_bytes=placement.block_bytes,
        )
    parameters = {
        "seed": truth.seed,
        "noise": truth.noise,
        "slowdown": [truth.slowdown(locality) for locality in Locality],
        "save_seconds": truth.save_seconds,
        "replicas": source.workload.replicas,
        "placement": placement and asdict(placement),
        "network": truth.network and _plain(truth.network),
        "shuffle": source.shuffle and asdict(source.shuffle),
    }
    believed = source.believed(cluster)
    parameters |= truth.troubles(cluster, believed)
    later = [change.host for change in changes if isinstance(change, HostAdded)]
    pool_changes = source.pool_changes(believed)
    visible = tuple(map(truth.told, jobs))
    spec = RunSpec(
        scheduler, "simulated", visible, believed, source, options, parameters, later=later
    )
    return spec.run(
        lambda _: nullcontext(SimulatedBackend(cluster, jobs, truth, pool_changes)),
        [Duration(tasks)] if tasks >= TASKS_MANY else [],
    )


def run(
    workload: WorkloadLike,
    scheduler: str = "flex",
    *,
    slots: Slots | None = None,
    resources: Mapping[str, Any] | None = None,
    emulate_hosts: bool = False,
    dask: Any = None,
    dask_slots: int | None = None,
    history: str | Path | None = None,
    resume: bool | str | Path = False,
    **options: Unpack[Options],
) -> Result:
    """Run a workload in worker processes of this machine, or of a Dask cluster.

    Jobs of stated work sleep for that time and copy nothing. `slots` is a number of slots, or a
    number for each kind; by default that of the workload's cluster, if it is only a number of
    slots, else the number of processors. With `emulate_hosts` the run uses the hosts of the
    workload's cluster instead, emulated on this machine: each host has its own workers, which
    run for a part of the time that equals its speed. No host may be faster than this machine,
    whose speed is 1. With `dask`, a `distributed.Client` or the address of a scheduler, each
    thread of a Dask worker is a slot, or at most `dask_slots` of them, and an agent next to it
    runs the tasks. `resources` are those of this machine beside slots, such as
    `{"memory": "6 GiB"}`, in place of what is found or stated.

    `history` is a database of earlier runs, created if it is missing. It gives the estimated
    work of programs and the speeds of hosts, and each task of a program that ends is added to
    it within seconds. What tasks print and the log are kept in the folder of the run, which
    `slotwise logs` reads; `keep=False` keeps nothing, and a path names another folder.

    With `resume`, only the jobs run that are not done, or that were made from what has changed
    since (`slotwise.resume`). Completed jobs are recorded for each workload file. For jobs that
    are given in Python, `resume` names the record by a path, such as that of the program.

    Ctrl-C raises RunInterrupted (a KeyboardInterrupt), which has the result so far. RunLost,
    raised if a Dask cluster has lost all hosts and no others can join, has it as well.
    """
    given = RunOptions.of(options, run)
    given.check_files(history)
    source = _source(workload, given, existing(history), is_live=True)
    with (
        resumed(source, resume, given.keep, is_local=dask is None) as (left, _),
        left.locating(),
    ):
        if dask is not None:
            if slots is not None or emulate_hosts:
                raise InputError(
                    f"{option_name('dask')}: the slots are the threads of Dask's workers; leave"
                    f" out {option_name('slots')} and {option_name('emulate_hosts')}, or give"
                    f" {option_name('dask_slots')}"
                )
            refuse_resources(resources, "Dask workers state their own")
            return _run_on_dask(left, scheduler, dask, dask_slots, history, given)
        if dask_slots is not None:
            raise InputError(
                f"{option_name('dask_slots')} is for the workers of a Dask cluster; give"
                f" {option_name('dask')}, too"
            )
        cluster = _live_cluster(left, slots, resources, emulate_hosts)
        return _run(left, scheduler, cluster, emulate_hosts, history, given)


@contextmanager
def resumed(
    source: Source, resume: bool | str | Path, keep: Keep, *, is_local: bool
) -> Iterator[tuple[Source, Sequence[Verdict]]]:
    """What is left to run, with the records of what is completed, and the verdicts on all jobs.

    Without `resume` there are no verdicts. `run` takes what is left as it is. Stages are kept
    only of local runs.
    """
    if not isinstance(resume, bool):
        check_file("resume", resume)
    elif resume and not source.file:
        raise InputError(
            "resume=True is for a workload file; name the record of these jobs by a path, as in"
            " resume='jobs.py'"
        )
    place = source.file if isinstance(resume, bool) else resume
    if source.records or not place or (not resume and keep is False):
        yield source, ()
        return
    record = DoneRecord(place)
    with record.in_use(refuses=bool(resume)):
        known = record.read()
        found = verdicts(source, known, record.stages() if is_local else None) if resume else []
        continued = {one.job: one.stages for one in found if one.stages is not None}
        kept = {one.job: one.kept for one in found}
        recorder = DoneRecorder(record, source, known, kept, continued)
        left = remaining(source, found, known) if resume else source
        left, staged = replace(left, records=(recorder,)), ProgramJob | DataflowJob
        if not is_local or not any(isinstance(one, staged) for one in left.workload.jobs):
            yield left, found
            return
        from slotwise.stages import Stages

        with closing(Stages(record, source.workload, continued, recorder)) as stages:
            yield replace(left, stages=stages), found


def _run_on_dask(
    source: Source,
    scheduler: str,
    dask: Any,
    dask_slots: int | None,
    history: str | Path | None,
    options: RunOptions,
) -> Result:
    from slotwise.backends.agents.source import dask_workers

    workers = dask_workers(dask, dask_slots)  # Raises an error without the extra `dask`.
    from slotwise.backends.agents.backend import AgentsBackend, cluster_of

    try:
        hosts = workers.connect()
        cluster = cluster_of(hosts)  # Agents have no separate slots for copies.
        return _run(
            source,
            scheduler,
            cluster,
            False,
            history,
            options,
            lambda executions, logs: AgentsBackend(executions, workers, hosts, logs=logs),
        )
    finally:
        workers.close()


def _live_cluster(
    source: Source,
    slots: Slots | None,
    resources: Mapping[str, Any] | None,
    emulate_hosts: bool,
) -> Cluster:
    """Return the cluster of a local run: this machine, or the hosts that it emulates."""
    stated = source.workload.cluster
    if not emulate_hosts:
        from slotwise.backends.local.backend import LocalBackend

        if slots is None:
            slots = processors()
            if stated is not None and not names_hosts(stated):
                slots = sum(stated.capacity.values())
        check_live_slots(slots)
        has = resources_of_host(source.workload, resources)
        needs_gpus = may_request(source.workload, GPU)
        local = LocalBackend.cluster(slots, has, needs_gpus=needs_gpus)
        return source.cluster(local if stated is None else replace(local, grace=stated.grace))
    if slots is not None:
        raise InputError(
            f"slots are {slots} where hosts are emulated, which have slots of their own; leave"
            f" out one of {option_name('slots')} and {option_name('emulate_hosts')}"
        )
    refuse_resources(resources, "emulated hosts have resources of their own")
    if source.workload.changes:
        raise InputError(
            "cluster.changes: emulated hosts do not change; leave them out, or simulate"
        )
    return source.cluster(emulated(stated))


def _run(
    source: Source,
    scheduler: str,
    cluster: Cluster,
    is_emulated: bool,
    history: str | Path | None,
    options: RunOptions,
    backend: Callable[[Sequence[Execution], AttemptLogs | None], LiveBackend] | None = None,
) -> Result:
    """Run the jobs of a source, by default on this machine, and record tasks in the history."""
    from slotwise.backends.local.backend import LocalBackend
    from slotwise.backends.local.presence import enter

    if is_emulated:
        source.refuse_unknown_hosts(cluster)
    elif backend is not None and (wrong := source.unknown_hosts(cluster)):
        warn_user(f"{wrong}: no task is near that input")
    executions = source.executions(cluster)
    listeners = []
    if history is not None:
        runs = {execution.job.id: execution for execution in executions}
        listeners.append(HistoryWriter(history, runs, cluster))
    jobs = tuple(execution.job for execution in executions)
    parameters: dict[str, Any] = {"shuffle": source.shuffle and asdict(source.shuffle)}
    believed = source.believed(cluster)
    if is_emulated:
        parameters["play_hosts"] = True
        true = {
            h.name: h.speed for h in cluster.hosts if h.speed != believed.by_name[h.name].speed
        }
        if true:
            parameters["speeds"] = true
    elif backend is None:
        (host,) = cluster.hosts
        parameters["slots"] = dict(host.slots)
    spec = RunSpec(scheduler, "live", jobs, believed, source, options, parameters, listeners)

    def begin(made: LiveBackend) -> LiveBackend:
        made.inbox.expect(source.pool_changes(believed))
        return made

    if backend is not None:
        return spec.run(lambda logs: begin(backend(executions, logs)), source.records)
    slots = sum(cluster.capacity.values())
    with enter(slots, processors(), warn_user, reports=True):

        def local(logs: AttemptLogs | None) -> LiveBackend:
            if source.stages is not None and logs is not None:
                source.stages.begin(logs.folder.parent)
            return begin(LocalBackend(executions, cluster, logs=logs))

        return spec.run(local, source.records)


def compare(
    workload: WorkloadLike,
    schedulers: Sequence[str] | str = ("fifo", "fair", "flex"),
    *,
    live: bool = False,
    slots: Slots | None = None,
    resources: Mapping[str, Any] | None = None,
    emulate_hosts: bool = False,
    simulation: Simulation | None = None,
    history: str | Path | None = None,
    **options: Unpack[Options],
) -> Results:
    """Simulate the same workload under several schedulers, or run it with `live=True`.

    In live runs the programs of each scheduler write to their own outputs: OUTPUT-fifo and so
    on. Logs are named in the same way. `emulate_hosts` is for live runs, as in `run`. All
    schedulers get the same estimates from a `history`: its contents before the first run. Live
    runs create it if it is missing and add to it. If a run is stopped, or cannot be recorded,
    the exception has the results of the earlier runs as `earlier`.
    """
    given = RunOptions.of(options, compare)
    names = checked_names([schedulers] if isinstance(schedulers, str) else schedulers)
    options_of = {name: _options_for(given, name) for name in names}
    for own in options_of.values():
        own.check_files(history)
    source = _source(workload, given, existing(history) if live else history, is_live=live)
    sources = [
        source.with_options(output_suffix=f"-{name}") if live else source for name in names
    ]
    if emulate_hosts and not live:
        raise InputError(
            f"hosts are emulated in live runs; add {option_name('live')}, or leave"
            f" {option_name('emulate_hosts')} out"
        )
    if live:
        cluster = _live_cluster(source, slots, resources, emulate_hosts)
        for one in sources:
            with source.locating():  # Checks the outputs of all runs before the first one.
                one.executions(cluster)
    results = Results()
    for name, one in zip(names, sources, strict=True):
        own = options_of[name]
        try:
            with source.locating():
                if live:
                    result = _run(one, name, cluster, emulate_hosts, history, own)
                else:
                    result = _simulate(one, name, simulation, slots, resources, own)
        except RunStopped as stop:
            stop.earlier = tuple(results)
            raise
        except KeyboardInterrupt:  # Between two runs.
            if not results:
                raise
            last = RunInterrupted(results[-1])
            last.earlier = tuple(results[:-1])
            raise last from None
        results.append(result)
    return results


def replay(log: Log | str | Path) -> Replay:
    """Repeat all decisions of a log with its own scheduler, and compare them."""
    from slotwise.insight.replay import replay_log

    with following(log) as read:
        return replay_log(read)


@overload
def explain(log: Log | str | Path, job: str, at: float) -> Explanation: ...


@overload
def explain(log: Log | str | Path, job: str) -> JobExplained: ...


@overload
def explain(log: Log | str | Path) -> WorstWaits: ...


def explain(
    log: Log | str | Path, job: str | None = None, at: float | None = None
) -> Explanation | JobExplained | WorstWaits:
    """Explain why jobs waited, what held one job, or why it holds its slots at an instant.

    Without a job, return the longest waits of all jobs, longest first. Each has the jobs that
    held the slots meanwhile, and a change that would have helped. For a job, return its life
    from arrival to end in intervals: the slots that it held and wanted, the reason, and who
    held the slots; it is also the sequence of its waits. With an instant `at` (seconds), return
    why it holds its slots then. Each prints as the command does, and as a table in notebooks.
    """
    from slotwise.insight.explain import explain as explain_log
    from slotwise.insight.held_back import explain_job
    from slotwise.insight.intervals import WorstWaits
    from slotwise.insight.timeline import timeline_of
    from slotwise.insight.waits import worst_waits

    if at is not None and not is_number(at):
        raise InputError(f"{option_name('at')} is {shown(at)}; expected an instant in seconds")
    with following(log) as read:
        if job is None and at is None:
            return WorstWaits(worst_waits(read, timeline_of(read)))
        if job is None:
            name = option_name("at")
            raise InputError(
                f"{name} {at:g} is given without {option_name('job')}; name the job, too"
            )
        return explain_job(read, job) if at is None else explain_log(read, job, at)


def write_report(
    results: Iterable[Result], path: str | Path, *, pictures: bool = False
) -> list[Path]:
    """Write a page that shows these results side by side; return the paths written.

    InputError unless `results` contains at least one result and nothing else.
    """
    given = list(results) if isinstance(results, Iterable) else None
    if given is None or not all(isinstance(result, Result) for result in given):
        raise InputError(
            f"results is {shown(results)}; expected a list of results, such as [result]"
        )
    return page.write_report([result.reported for result in given], path, pictures=pictures)


def _options_for(options: RunOptions, name: str) -> RunOptions:
    """The options of a comparison for one scheduler, which has files of its own."""
    if isinstance(options.keep, str | Path):
        options = replace(options, keep=Path(options.keep) / name)
    if options.log is None:
        return options
    log = Path(options.log)
    return replace(options, log=log.with_name(f"{log.stem}-{name}{log.suffix}"))


def _source(
    workload: WorkloadLike,
    options: RunOptions,
    history: str | Path | None = None,
    *,
    is_live: bool = False,
) -> Source:
    """The workload with the options of a run and the estimates of a history applied."""
    return read_source(workload, is_live=is_live).with_options(
        history=history,
        preemption=options.preemption,
        shuffle=options.shuffle,
        retry_delay=options.retry_delay,
        time_limit=options.time_limit,
    )


def _plain(network: Network) -> dict[str, float | None]:
    """The network as in the log: None means no limit, because JSON has no infinite numbers."""
    return {key: None if rate == inf else rate for key, rate in asdict(network).items()}
