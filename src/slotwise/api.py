"""plan, simulate, run, compare, replay, explain: the functions that put the parts together.

Each takes a workload (a `Workload`, the path of a workload file, or a list of jobs) and gives
a value. InputError, with place, value and remedy, before anything is begun.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from math import inf
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

from slotwise.analysis.explain import Explanation
from slotwise.analysis.explain import explain as explain_log
from slotwise.analysis.replay import Replay, replay_log
from slotwise.asked import Slots, cluster_of, objective_of, processors
from slotwise.assignment.delay import Delay
from slotwise.model.cluster import Cluster
from slotwise.model.decision import Decision, Locality
from slotwise.model.errors import InputError
from slotwise.model.event import Event
from slotwise.model.job import Job
from slotwise.model.network import Network
from slotwise.model.pool import Preemption
from slotwise.model.shuffle import Shuffle
from slotwise.objective.objective import Objective
from slotwise.plans import PLAN_SECONDS as PLAN_SECONDS
from slotwise.plans import plan as plan
from slotwise.plans import plan_tasks as plan_tasks
from slotwise.program.execution import Sized
from slotwise.record.log import Header, Log, LogFile, read_log
from slotwise.record.remembering import Remembering
from slotwise.report import page
from slotwise.results import Result, RunInterrupted
from slotwise.runtime.live.hosts import played
from slotwise.runtime.live.world import LiveWorld
from slotwise.runtime.loop import Record
from slotwise.runtime.loop import run as run_loop
from slotwise.runtime.simulated.world import SimulatedWorld, Simulation
from slotwise.runtime.state import ATTEMPTS_MAX, LOSSES_MAX, State
from slotwise.runtime.world import World
from slotwise.scheduler import EPOCH_SECONDS, check_scheduler, make_scheduler
from slotwise.sources import Given, Source, read_source
from slotwise.version import __version__
from slotwise.workload.placement import place_blocks


class Options(TypedDict, total=False):
    """How a run is scheduled, in either world; the keyword arguments of simulate and run.

    assigner       "greedy" or "delay"
    epoch_seconds  how often the allocation is decided anew
    waits          delay scheduling's two waits in seconds: for the rack, for any slot; None:
                   one and a half and three heartbeats of the cluster, 5 and 10 without any
    budget_seconds how long flex may search at each decision, about; None leaves it to flex
    objective      instead of the workload's own: an Objective, or the name of a penalty
    preemption     instead of the workload's: how pools take slots back that do not say so
                   themselves
    shuffle        instead of the workload's: how reduces come to what maps have written
    attempts_max   how often a task may fail before its job does
    log            file to write the log to
    progress       told of every turn of the loop
    """

    assigner: str
    epoch_seconds: float
    waits: tuple[float, float] | None
    budget_seconds: float | None
    objective: Objective | str | None
    preemption: Preemption | None
    shuffle: Shuffle | None
    attempts_max: int
    log: str | Path | None
    progress: Record | None


def simulate(
    workload: Given,
    scheduler: str = "flex",
    *,
    simulation: Simulation | None = None,
    slots: Slots | None = None,
    history: str | Path | None = None,
    **options: Unpack[Options],
) -> Result:
    """Run a workload task by task on the simulated cluster, the same each time.

    From a `history` comes the work of programs that it knows, and the speeds of hosts that the
    scheduler is told of; the cluster goes at the speeds that are stated. Nothing is added.
    """
    _refuse_log(history, options)
    source = _source(workload, options, history)
    truth = simulation or Simulation()
    if truth.network is None:
        truth = replace(truth, network=source.workload.network)
    cluster = source.cluster(cluster_of(source.workload, slots))
    truth.check(cluster)
    jobs = source.jobs(cluster)
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
    told = source.told(cluster)
    parameters |= truth.troubles(cluster, told)
    setting = _Setting(scheduler, "simulated", jobs, told, source, options, parameters)
    return setting.run(lambda: nullcontext(SimulatedWorld(cluster, jobs, truth)))


def run(
    workload: Given,
    scheduler: str = "flex",
    *,
    slots: Slots | None = None,
    play_hosts: bool = False,
    history: str | Path | None = None,
    **options: Unpack[Options],
) -> Result:
    """Run a workload really, in worker processes of this machine.

    Jobs of stated work sleep for it, and copy nothing. `slots` is the number of processors
    unless given, or a number for each kind. `play_hosts`: instead, the hosts of the workload's
    cluster are played here, each with workers of its own, which run for as much of the time as
    its speed says; none may be faster than this machine, which is 1.

    `history` is a database of earlier runs: from it come the work of programs and the speeds of
    hosts that it knows, and each task of a program that ends is added to it within seconds; it
    is made if there is none. RunInterrupted (a KeyboardInterrupt) carries what was done when
    Ctrl-C comes.
    """
    _refuse_log(history, options)
    source = _source(workload, options, _existing(history))
    cluster = _live_cluster(source, slots, play_hosts)
    return _run(source, scheduler, cluster, play_hosts, history, options)


def _live_cluster(source: Source, slots: Slots | None, play_hosts: bool) -> Cluster:
    """What a live run runs on: this machine, or the hosts that are played on it."""
    stated = source.workload.cluster
    if not play_hosts:
        here = LiveWorld.cluster(processors() if slots is None else slots)
        return source.cluster(here if stated is None else replace(here, grace=stated.grace))
    if slots is not None:
        raise InputError(
            f"slots are {slots} where hosts are played, which have slots of their own; leave"
            " out one of --slots and --play-hosts"
        )
    return source.cluster(played(stated))


def _run(
    source: Source,
    scheduler: str,
    cluster: Cluster,
    is_played: bool,
    history: str | Path | None,
    options: Options,
) -> Result:
    """Run really what is known by now, and add to the history what ends."""
    executions = source.executions(cluster)
    listeners = []
    if history is not None:
        sized = [execution for execution in executions if isinstance(execution, Sized)]
        programs = {one.job.id: (one.program, one.sizes) for one in sized}
        listeners.append(Remembering(history, programs, cluster))
    jobs = tuple(execution.job for execution in executions)
    parameters: dict[str, Any] = {"shuffle": source.shuffle and asdict(source.shuffle)}
    told = source.told(cluster)
    if is_played:
        parameters["play_hosts"] = True
        true = {h.name: h.speed for h in cluster.hosts if h.speed != told.by_name[h.name].speed}
        if true:
            parameters["speeds"] = true
    else:
        (host,) = cluster.hosts
        parameters["slots"] = dict(host.slots)
    setting = _Setting(scheduler, "live", jobs, told, source, options, parameters, listeners)
    return setting.run(lambda: LiveWorld(executions, cluster))


def compare(
    workload: Given,
    schedulers: Sequence[str] | str = ("fifo", "fair", "flex"),
    *,
    live: bool = False,
    slots: Slots | None = None,
    play_hosts: bool = False,
    simulation: Simulation | None = None,
    history: str | Path | None = None,
    **options: Unpack[Options],
) -> list[Result]:
    """The same workload under several schedulers, in the simulated world or really.

    Live, each scheduler's programs write to outputs of their own: OUTPUT-fifo and so on. Logs
    are named in the same way. `play_hosts` is for live runs, as in run. A `history` tells all
    of them the same, what is known before the first; live, it is made if there is none, and
    what ends is added.
    """
    names = _check_names([schedulers] if isinstance(schedulers, str) else schedulers)
    apiece = {name: _apart(options, name) for name in names}
    for mine in apiece.values():
        _refuse_log(history, mine)
    source = _source(workload, options, _existing(history) if live else history)
    sources = [source.apart(name) if live else source for name in names]
    if play_hosts and not live:
        raise InputError("hosts are played in live runs; add --live, or leave --play-hosts out")
    if live:
        cluster = _live_cluster(source, slots, play_hosts)
        for apart in sources:
            apart.executions(cluster)  # Refuses the last output before the first one runs.
    results = []
    for name, apart in zip(names, sources, strict=True):
        mine = apiece[name]
        if live:
            results.append(_run(apart, name, cluster, play_hosts, history, mine))
        else:
            results.append(simulate(apart, name, simulation=simulation, slots=slots, **mine))
    return results


def _check_names(schedulers: Iterable[str]) -> list[str]:
    """The names of schedulers, each known and named once; refused before the first run."""
    names = list(schedulers)
    for name in names:
        make_scheduler(name)
        if names.count(name) > 1:
            raise InputError(f"scheduler {name!r} is named twice; name each one once")
    return names


def replay(log: Log | str | Path) -> Replay:
    """Decide everything in a log again by its own scheduler, and compare."""
    return replay_log(log if isinstance(log, Log) else read_log(log))


def explain(log: Log | str | Path, job: str, at: float) -> Explanation:
    """Why a job holds the slots that it holds at an instant of a run, in seconds."""
    return explain_log(log if isinstance(log, Log) else read_log(log), job, at)


def write_report(
    results: Sequence[Result], path: str | Path, *, pictures: bool = False
) -> list[Path]:
    """Write one page that shows these results side by side; the paths that were written."""
    return page.write_report([result.reported for result in results], path, pictures=pictures)


@dataclass(frozen=True, slots=True)
class _Setting:
    """All that makes a run, but the world."""

    scheduler: str
    world: Literal["live", "simulated"]
    jobs: tuple[Job, ...]
    cluster: Cluster
    source: Source
    options: Options
    parameters: dict[str, Any]
    listeners: Sequence[Remembering] = ()

    def run(self, make_world: Callable[[], AbstractContextManager[World]]) -> Result:
        """Run the loop in a world and measure what came of it.

        The world is made last: whatever can be refused is refused before it begins.
        """
        header = self._header()
        scheduler = make_scheduler(**header.scheduler, objective=Objective(**header.objective))
        state = State(
            self.cluster,
            header.pools,
            jobs_expected=header.jobs_expected,
            attempts_max=header.attempts_max,
            losses_max=header.losses_max,
        )
        log = Log(header)
        with ExitStack() as stack:
            told: list[Record] = [log]
            if path := self.options.get("log"):
                told.append(stack.enter_context(LogFile(path, header)))
            if progress := self.options.get("progress"):
                told.append(progress)
            told += [stack.enter_context(listener) for listener in self.listeners]
            world = stack.enter_context(make_world())
            try:
                run_loop(scheduler, world, state, _all_of(told))
            except KeyboardInterrupt:
                raise RunInterrupted(Result.of_log(log)) from None
        return Result.of_log(log)

    def _header(self) -> Header:
        """All that is needed to decide the same again: the run itself begins from it, too."""
        options = self.options
        attempts_max = options.get("attempts_max", ATTEMPTS_MAX)
        if attempts_max < 1:
            raise InputError(f"attempts_max is {attempts_max}; a task needs at least 1")
        aim = objective_of(options.get("objective"), self.source)
        aim.check(self.jobs)
        for kind in {phase.kind: None for job in self.jobs for phase in job.phases}:
            self.cluster.slot_kind(kind)  # Refuses a kind that no host serves.
        for job in self.jobs:
            _refuse_stranded(job, self.cluster)
        check_scheduler(self.scheduler, self.jobs, self.cluster, self.source.pools())
        return Header(
            world=self.world,
            scheduler={
                "name": self.scheduler,
                "assigner": options.get("assigner", "greedy"),
                "epoch_seconds": options.get("epoch_seconds", EPOCH_SECONDS),
                "waits": self._waits(),
                "budget_seconds": options.get("budget_seconds"),
            },
            objective=asdict(aim),
            cluster=self.cluster,
            pools=tuple(self.source.pools().values()),
            jobs_expected=len(self.jobs),
            attempts_max=attempts_max,
            losses_max=LOSSES_MAX,
            parameters=self.parameters,
            versions=_versions(),
        )

    def _waits(self) -> tuple[float, float] | None:
        """Delay scheduling's waits: as asked for, else by the cluster's heartbeat if any."""
        waits, heartbeat = self.options.get("waits"), self.cluster.heartbeat
        if waits is None and heartbeat > 0 and self.options.get("assigner") == "delay":
            found = Delay.of_heartbeat(heartbeat)
            return found.rack_after, found.any_after
        return waits


def _apart(options: Options, name: str) -> Options:
    """The options for one scheduler of several, with a log of its own."""
    mine = options.copy()
    if log := options.get("log"):
        mine["log"] = Path(log).with_name(f"{Path(log).stem}-{name}{Path(log).suffix}")
    return mine


def _source(workload: Given, options: Options, history: str | Path | None = None) -> Source:
    """The workload with what the options say in its place, and what a history knows of it."""
    _refuse_unknown(options)
    source = read_source(workload, history)
    return source.but(options.get("preemption"), options.get("shuffle"))


def _existing(history: str | Path | None) -> str | Path | None:
    """A history that is there; none where one is still to be made."""
    return history if history is not None and os.path.exists(history) else None


def _refuse_log(history: str | Path | None, options: Options) -> None:
    """Refuse to write the log over the history."""
    log = options.get("log")
    if history is not None and log is not None and _is_same(Path(log), Path(history)):
        raise InputError(f"history {str(history)!r} is the log, too; name another file")


def _is_same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


def _refuse_stranded(job: Job, cluster: Cluster) -> None:
    """Refuse tasks that must go on where others ran, if they cannot on some host."""
    for phase in job.phases:
        if phase.continues is not None:
            try:
                cluster.check_continues(job.by_name[phase.continues].kind, phase.kind)
            except InputError as error:
                raise InputError(f"job {job.id!r}, phase {phase.name!r}: {error}") from None


def _refuse_unknown(options: Options) -> None:
    """Refuse what is no option; what makes a simulation true or not stands in a Simulation."""
    for name in sorted(options.keys() - Options.__annotations__.keys()):
        if name in Simulation.__dataclass_fields__:
            raise InputError(
                f"{name} is no option of its own; give simulation=Simulation({name}=...)"
            )
        raise InputError(
            f"unknown option {name!r}; known: {', '.join(Options.__annotations__)}"
        )


def _all_of(records: Sequence[Record]) -> Record:
    def record(now: float, events: Sequence[Event], decisions: Sequence[Decision]) -> None:
        for one in records:
            one(now, events, decisions)

    return record


def _plain(network: Network) -> dict[str, float | None]:
    """A network for the log; JSON has no infinite numbers, so None stands for no limit."""
    return {key: None if rate == inf else rate for key, rate in asdict(network).items()}


def _versions() -> dict[str, str]:
    return {
        "slotwise": __version__,
        "python": platform.python_version(),
        "numpy": version("numpy"),
    }
