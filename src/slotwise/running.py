"""Runs: everything that makes a run except its backend, and the call of the loop."""

from __future__ import annotations

import getpass
import os
import platform
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from inspect import signature
from itertools import product
from math import inf
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, TypeVar, cast

from slotwise import __version__
from slotwise.backends.attempt_logs import AttemptLogs
from slotwise.backends.inbox import Questions
from slotwise.backends.signals import undisturbed
from slotwise.backends.simulated.simulation import Simulation
from slotwise.core.cluster import Cluster, Host
from slotwise.core.dependencies import check_elements
from slotwise.core.errors import (
    HostsLostError,
    InputError,
    SlotwiseWarning,
    check_path,
    check_range,
    option_name,
    shown,
    suggestion,
)
from slotwise.core.files import is_same_file
from slotwise.core.history import HistoryWriter
from slotwise.core.job import Job, Shuffle
from slotwise.core.log import Header, Log, LogFile, check_log
from slotwise.core.loop import Backend, Record, all_of, initial_state
from slotwise.core.loop import run as run_loop
from slotwise.core.objective import Objective
from slotwise.core.pools import PoolTree, Preemption, check_fits, check_open
from slotwise.core.retries import ATTEMPTS_MAX, LOSSES_MAX, RETRY_DELAY, TIME_LIMIT
from slotwise.core.units import seconds_of
from slotwise.insight.metrics import MetricsCollector
from slotwise.policy.assignment.delay import DEFAULT_LEVELS, Delay
from slotwise.policy.scheduler import (
    ASSIGNERS,
    EPOCH_SECONDS,
    WAITERS,
    check_scheduler,
    make_scheduler,
)
from slotwise.results import Result, RunInterrupted, RunLost, RunUnrecorded
from slotwise.run_folder import Keep, OpenRun, check_keep
from slotwise.sources import Source, objective_of

if TYPE_CHECKING:
    from slotwise.backends.live import LiveBackend
    from slotwise.core.state import State

T = TypeVar("T")


class Options(TypedDict, total=False):
    """The fields of `RunOptions` as the keyword arguments of simulate, run and sessions."""

    assigner: str
    epoch_seconds: float
    waits: tuple[float, float] | None
    levels: str | None
    core_cost: float | None
    move_within: float | None
    budget_seconds: float | None
    objective: Objective | str | None
    preemption: Preemption | None
    shuffle: Shuffle | None
    attempts_max: int
    retry_delay: float | None
    time_limit: float | None
    log: str | Path | None
    keep: Keep
    progress: Record | None


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a run is scheduled on any backend; the command line takes its options from here.

    The annotations have the description and, if there is one, the least value. InputError for
    wrong types that no other place checks.
    """

    assigner: Annotated[str, f"How tasks get slots: {', '.join(ASSIGNERS)}."] = "greedy"
    epoch_seconds: Annotated[float, "Seconds between allocation decisions, at least 1e-06."] = (
        EPOCH_SECONDS
    )
    waits: Annotated[
        tuple[float, float] | None,
        "Waits of delay and flow in seconds >= 0, for slots in the rack and for any slot. By"
        " default flow does not wait; delay waits 1.5 and 3 heartbeats, or 5 and 10 s without"
        " them.",
    ] = None
    levels: Annotated[
        str | None,
        "For delay and flow, after a launch away from its input: persist at that level, by"
        " default, or restart the waits.",
    ] = None
    core_cost: Annotated[
        float | None,
        "For flow: the cost of a byte between racks, from 1 to 1000; within a rack it is 1.",
    ] = None
    move_within: Annotated[
        float | None,
        "For flow: seconds >= 0 for which a task that reads from another host may still move"
        " to a free slot near its input; by default none moves.",
    ] = None
    budget_seconds: Annotated[
        float | None,
        "Seconds that flex, flowflex or dmrs-best may search per decision; by default, they"
        " choose.",
        0,
    ] = None
    objective: Annotated[
        Objective | str | None, "An objective or a penalty, instead of the workload's."
    ] = None
    preemption: Annotated[
        Preemption | None,
        "When pools that do not state it reclaim slots, instead of the workload's.",
    ] = None
    shuffle: Annotated[
        Shuffle | None, "How reduces get the output of maps, instead of the workload's."
    ] = None
    attempts_max: Annotated[int, "Maximum attempts of a task.", 1] = ATTEMPTS_MAX
    retry_delay: Annotated[
        float | None,
        "Seconds before the second attempt of a task; they double before each further one, up"
        " to an hour. By default, tasks are retried at once.",
        0,
    ] = None
    time_limit: Annotated[
        float | None,
        "Seconds for which an attempt may run; then it is stopped, and has failed.",
        0,
    ] = None
    log: Annotated[str | Path | None, "File for the log (JSON Lines)."] = None
    keep: Annotated[
        Keep,
        "Keep log and output in the folder of the run, for `slotwise logs`; by default of live"
        " runs.",
    ] = None
    progress: Annotated[
        Record | None, "Called for every turn; by default, a notebook shows a table with bars."
    ] = None

    @classmethod
    def of(cls, options: Options, function: Callable[..., Any]) -> RunOptions:
        """The value of the further keyword arguments of a function.

        InputError for an unknown name, too.
        """
        for name in sorted(options.keys() - cls.__dataclass_fields__.keys()):
            if name in Simulation.__dataclass_fields__:
                raise InputError(
                    f"{name} is an option of simulations; give"
                    f" simulation=Simulation({name}=...)"
                )
            own = [
                one.name
                for one in signature(function).parameters.values()
                if one.default is not one.empty
            ]
            known = *own, *cls.__dataclass_fields__
            raise InputError(f"unknown option {name!r}; {suggestion(name, known)}")
        return cls(**options)

    def __post_init__(self) -> None:
        check_file("log", self.log)
        check_keep(self.keep)
        if not isinstance(self.preemption, Preemption | None):
            raise InputError(
                f"preemption is {shown(self.preemption)}; expected a slotwise.Preemption, such"
                " as slotwise.Preemption(least_after=1.0)"
            )
        if not isinstance(self.shuffle, Shuffle | None):
            raise InputError(f"shuffle is {shown(self.shuffle)}; expected a slotwise.Shuffle")
        name, remedy = option_name("attempts_max"), "expected a whole number >= 1"
        check_range(name, self.attempts_max, 1, inf, remedy, whole=True)
        for name in ("retry_delay", "time_limit"):  # A duration is accepted, too.
            seconds = seconds_of(option_name(name), getattr(self, name))
            object.__setattr__(self, name, seconds)
        if self.retry_delay is not None:
            RETRY_DELAY.check(option_name("retry_delay"), self.retry_delay)
        if self.time_limit is not None:
            TIME_LIMIT.check(option_name("time_limit"), self.time_limit)
        if self.progress is not None and not callable(self.progress):
            raise InputError(
                f"progress is {shown(self.progress)}; expected a function of an instant, its"
                " events and its decisions"
            )

    def check_files(self, history: str | Path | None) -> None:
        """Raise InputError if the log would replace the history or a file that is not a log."""
        check_file("history", history)
        if self.log is not None:
            if history is not None and is_same_file(self.log, history):
                raise InputError(f"history {str(history)!r} is the log, too; name another file")
            check_log(self.log)

    def of_scheduler(
        self, name: str, cluster: Cluster, rest_seconds: float = 0.0
    ) -> dict[str, Any]:
        """The arguments of `make_scheduler`, as in the header of the log.

        By default, the waits of delay scheduling follow from the heartbeat of the cluster.
        """
        levels, waits = self.levels, self.waits
        if levels is None and self.assigner in WAITERS:
            levels = DEFAULT_LEVELS
        if waits is None and cluster.heartbeat > 0 and self.assigner == "delay":
            found = Delay.of_heartbeat(cluster.heartbeat)
            waits = found.rack_after, found.any_after
        of_flow = {"core_cost": self.core_cost, "move_within": self.move_within}
        return {
            "name": name,
            "assigner": self.assigner,
            "epoch_seconds": self.epoch_seconds,
            "waits": waits,
            **({} if levels is None else {"levels": levels}),
            "budget_seconds": self.budget_seconds,
            "adjusts": True,
            **({"rest_seconds": rest_seconds} if rest_seconds else {}),
            **{name: value for name, value in of_flow.items() if value is not None},
        }


def check_file(what: str, path: object) -> None:
    """Raise InputError unless it is None or the path of a file."""
    check_path(what, path)
    if path is not None and not Path(str(path)).name:
        raise InputError(
            f"{what} {str(path)!r} is not the path of a file; give a path with a name"
        )


class RunLoop:
    """The loop of a live run, for other threads. The thread that makes it runs the loop."""

    def __init__(
        self, backend: LiveBackend, state: State, header: Header, records: list[Record]
    ) -> None:
        self.state, self.scheduler_name = state, str(header.scheduler["name"])
        self.penalty = str(header.objective["penalty"])
        self._backend, self._records, self._thread = backend, records, get_ident()
        self._questions = Questions(backend.inbox, backend.answer_all)

    @property
    def now(self) -> float:
        """Seconds on the clock of the run."""
        return self._backend.now

    def ask(self, question: Callable[[], T]) -> T:
        """Call a function between two turns, or directly after the end of the loop."""
        return question() if get_ident() == self._thread else self._questions.ask(question)

    def observe(self, record: Record) -> None:
        """Call a record for each turn from now on."""
        self.ask(lambda: self._records.append(record))

    def end(self) -> None:
        """Answer what was asked: the loop has ended."""
        self._questions.end()


class RunWatcher(ABC):
    """A record of a live run that also reads its state, in a thread of its own."""

    @abstractmethod
    def watching(self, loop: RunLoop) -> AbstractContextManager[object]:
        """Entered before the first turn, and left after the last; it then calls `loop.end`."""


@dataclass(frozen=True, slots=True)
class RunSpec:
    """Everything that makes a run except its backend."""

    scheduler: str
    backend: Literal["live", "simulated"]
    jobs: tuple[Job, ...]
    cluster: Cluster
    source: Source
    options: RunOptions
    parameters: dict[str, Any]
    listeners: Sequence[HistoryWriter] = ()
    later: Sequence[Host] = ()
    """The hosts that join the cluster during the run."""

    def run(
        self,
        make_backend: Callable[[AttemptLogs | None], AbstractContextManager[Backend]],
        more: Sequence[Record] = (),
    ) -> Result:
        """Run the loop on a backend and return the result; `more` also get each turn.

        The backend is created last, after all checks of input, with what keeps the output of
        attempts. If the log or the history cannot be written at the end, RunUnrecorded has the
        result. RunLost has it if no host is left.
        """
        header = self.header()
        scheduler = make_scheduler(**header.scheduler, objective=Objective(**header.objective))
        state = initial_state(header)
        log, file, meter = Log(header), None, MetricsCollector(header)
        opened = OpenRun(self.options.keep, header, self.options.log, self.source.file)
        from slotwise.insight.report.notebook import NotebookProgress, notebook_display

        try:
            with ExitStack() as stack:
                records: list[Record] = [meter, *more]
                if stack.enter_context(opened).folder is not None:
                    records.append(opened)
                if path := self.options.log:
                    file = stack.enter_context(LogFile(path, header))
                    records.append(file)
                if file is None or not file.is_kept:
                    records.append(log)
                if progress := self.options.progress:
                    records.append(progress)
                elif show := notebook_display():
                    title = f"{self.scheduler}, {self.backend}"
                    records.append(stack.enter_context(NotebookProgress(show, title)))
                records += [stack.enter_context(listener) for listener in self.listeners]
                with undisturbed():  # A started backend is always closed.
                    backend = stack.enter_context(make_backend(opened.logs))
                if isinstance(progress, RunWatcher) and self.backend == "live":
                    loop = RunLoop(cast("LiveBackend", backend), state, header, records)
                    stack.enter_context(progress.watching(loop))
                run_loop(scheduler, backend, state, all_of(records), opened)
        except KeyboardInterrupt:
            raise RunInterrupted(_result(meter, log, file, opened)) from None
        except HostsLostError as error:
            raise RunLost(error, _result(meter, log, file, opened)) from error
        except InputError as error:
            if not state.is_done:
                raise
            raise RunUnrecorded(error, _result(meter, log, file, opened)) from error
        return _result(meter, log, file, opened)

    def header(self, *, rest_seconds: float = 0.0, is_open: bool = False) -> Header:
        """Return all that is needed to repeat the decisions. The run itself starts from it."""
        aim = objective_of(self.options.objective, self.source)
        pools = self.source.pools(self.cluster)
        check_jobs(self.jobs, self.cluster, aim, pools, self.later)
        changed = [PoolTree(one.pools) for one in self.source.pool_changes(self.cluster)]
        for job, tree in product(self.jobs, changed):
            check_fits(job, self.cluster, tree, self.later)
        user = account() if self.backend == "live" else None
        last, when = (changed[-1], " after the last change") if changed else (pools, "")
        for job in self.jobs:  # A pool that a change opens may be closed before.
            check_open(job, last, user, when)
        _refuse_open(self.jobs)
        kinds = frozenset(self.cluster.capacity)
        for host in self.later:
            refuse_stranded(self.jobs, replace(self.cluster, hosts=(host,), kinds=kinds))
        kinds |= {kind for host in self.later for kind, count in host.slots.items() if count}
        cluster = replace(self.cluster, kinds=kinds)
        for tree in (pools, *changed):
            check_scheduler(self.scheduler, self.jobs, cluster, tree)
        return Header(
            backend=self.backend,
            scheduler=self.options.of_scheduler(self.scheduler, self.cluster, rest_seconds),
            objective=asdict(aim),
            cluster=self.cluster,
            pools=tuple(pools.values()),
            jobs_expected=None if is_open else len(self.jobs),
            attempts_max=self.options.attempts_max,
            losses_max=LOSSES_MAX,
            parameters=self.parameters,
            versions=_versions(),
            user=user,
        )


def _result(meter: MetricsCollector, log: Log, file: LogFile | None, opened: OpenRun) -> Result:
    """The result of a run. If its log is in a file, the turns are read from there."""
    has_turns = file is not None and file.is_kept and file.has_begun
    result = Result.measured(meter, file.log() if file and has_turns else log)
    return replace(result, folder=None if opened.folder is None else opened.folder.path)


def check_jobs(
    jobs: Sequence[Job],
    cluster: Cluster,
    objective: Objective,
    pools: PoolTree,
    later: Sequence[Host] = (),
    known: Mapping[str, Job] | None = None,
) -> None:
    """Raise InputError for a job that cannot be run in these pools or measured.

    later  the hosts that will be added to the cluster
    known  other jobs that these wait for and that are not over
    """
    objective.check(jobs)
    if any(job.after_each for job in jobs):
        check_elements(jobs, {**(known or {}), **{job.id: job for job in jobs}})
    for kind in {phase.kind: None for job in jobs for phase in job.phases}:
        cluster.slot_kind(kind)  # Raises an error for a kind that no host serves.
    for job in jobs:
        check_fits(job, cluster, pools, later)
    refuse_stranded(jobs, cluster)


def _refuse_open(jobs: Sequence[Job]) -> None:
    """Raise InputError for phases that only a session or a gate can end."""
    for job, phase in ((one, phase) for one in jobs for phase in one.phases):
        if phase.grows or phase.gated:
            what = "grows" if phase.grows else "gated"
            raise InputError(
                f"job {job.id!r}, phase {phase.name!r}: {what} is for backends that report its"
                " tasks one by one; leave it out"
            )


def checked_names(schedulers: Iterable[str] | None) -> list[str]:
    """Return the names. InputError without names, and for unknown and repeated names."""
    names = list(schedulers) if isinstance(schedulers, Iterable) else []
    if not names:
        raise InputError(
            f"{option_name('schedulers')} is {shown(schedulers)}; name some, such as fifo, fair"
            " and flex"
        )
    for name in names:
        make_scheduler(name)
        if names.count(name) > 1:
            raise InputError(f"scheduler {name!r} is named twice; remove one")
    return names


def existing(history: str | Path | None) -> str | Path | None:
    """The history, or None if it does not exist yet."""
    return history if history is not None and os.path.exists(history) else None


def warn_user(text: str) -> None:
    """Warn at the line of user code that called slotwise."""
    package, level = f"{Path(__file__).parent}{os.sep}", 2
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(package):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, SlotwiseWarning, stacklevel=level)


def refuse_stranded(jobs: Sequence[Job], cluster: Cluster) -> None:
    """Raise InputError if tasks must continue on the host of others that cannot run them."""
    for job, phase in ((one, phase) for one in jobs for phase in one.phases):
        if phase.continues is not None:
            try:
                before = job.by_name[phase.continues]
                slots, needs = (before.slots, phase.slots), (before.needs, phase.needs)
                cluster.check_continues(before.kind, phase.kind, slots, needs)
            except InputError as error:
                raise InputError(f"job {job.id!r}, phase {phase.name!r}: {error}") from None


def account() -> str | None:
    """The account of this process; None where it has no name, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None


def _versions() -> dict[str, str]:
    return {
        "slotwise": __version__,
        "python": platform.python_version(),
        "numpy": version("numpy"),
    }
