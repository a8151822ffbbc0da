"""The methods that a session and a client of a server share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FunctionType, TracebackType
from typing import Any, ClassVar, ParamSpec, Protocol, Self, TypeVar

from slotwise.core.cluster import Host
from slotwise.core.errors import check_whole
from slotwise.core.units import seconds_of
from slotwise.forecast.eta import Eta, WhatIf
from slotwise.insight.explanation import Explanation
from slotwise.insight.report.session_table import SessionJobs
from slotwise.sessions.calls import Binding, CallHost, CallSubmitter, submit_after
from slotwise.sessions.changes import JobChanges, checked_changes
from slotwise.sessions.command_inputs import CommandInputs, WordHost
from slotwise.sessions.executor import AHEAD, SessionExecutor, map_lazily
from slotwise.sessions.futures import ETA_SECONDS, Future
from slotwise.sessions.hosts import check_mapping, check_names, checked_entry
from slotwise.sessions.what_if import Asked
from slotwise.sources import Entry
from slotwise.workload.dates import seconds_until
from slotwise.workload.workload import CommandJob
from slotwise.workload.workload import command as slotwise_command

P = ParamSpec("P")
T = TypeVar("T")


class MethodHost(CallHost, WordHost, Protocol):
    """The interface of the core of a session, or of a client, for these methods."""

    @property
    def slots(self) -> int:
        """The number of slots of all hosts that are present."""
        ...

    def shown(self, most: int | None = None) -> SessionJobs:
        """The jobs at one instant: all, or the first ones for a display."""
        ...

    def etas(self) -> dict[str, Eta]:
        """The last forecasts of all jobs."""
        ...

    def html(self) -> str:
        """The jobs as a table."""
        ...

    def __reduce__(self) -> tuple[Any, ...]:
        """InputError: it belongs to this process."""
        ...


class SessionMethods(ABC):
    """Calls, jobs and commands that are submitted to a scheduler, and what it shows of them."""

    _intake: MethodHost
    _limits: dict[str, Any]
    _single: CallSubmitter
    _submitter: ClassVar[type[CallSubmitter]] = CallSubmitter

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call `fn(*args, **kwargs)` in a worker process, as a job; return at once.

        Futures of this session anywhere within the arguments are replaced by their results, and
        the call waits for these. Results are not unpickled in this process. For many small
        calls an `executor` takes less time, because its calls are tasks of one job.
        """
        return self._single.submit(fn, args, kwargs)

    def executor(
        self,
        *,
        name: str = "executor",
        pool: str = "default",
        weight: float = 1.0,
        deadline: float | str | None = None,
        priority: str = "normal",
        slots: int = 1,
        slots_max: int | None = None,
        resources: Mapping[str, Any] | None = None,
        attempts: int | None = None,
        retry_delay: float | str | None = None,
        time_limit: float | str | None = None,
        time_requested: float | str | None = None,
        user: str | None = None,
        ahead: int | None = None,
    ) -> SessionExecutor:
        """An executor (`concurrent.futures.Executor`) whose calls are the tasks of one job.

        deadline   seconds after the first call, or a duration such as "5m"
        slots      the slots of one host that each call occupies, with as many processors
        slots_max  the most slots that its calls hold at once
        resources  what each call requests of its host beside slots, by name: `memory` in bytes
                   or as a size, `gpu`, and others; `{"memory": "4 GiB", "gpu": 0.5}`
        attempts   how often a call may be tried. By default an exception is its result at once,
                   and only a call that loses its worker process is repeated
        retry_delay  seconds before the second attempt; they double before each further one
        time_limit   seconds for which an attempt may run; then its worker process is killed
        time_requested  seconds that a call should take at most, for backfilling
        user         whose job it is, for limits of users; by default, the account
        ahead      how many calls Dask submits before the first of them ends; by default the
                   number of slots, with which the scheduler does not know the size of the job

        InputError for values that no job can have, and for more slots or resources than a host
        or the pool has.
        """
        self._intake.check_open(had_waited=False)
        due = seconds_of("deadline", deadline)
        stated = {
            "retry_delay": seconds_of("retry_delay", retry_delay),
            "time_limit": seconds_of("time_limit", time_limit),
            "time_requested": seconds_of("time_requested", time_requested),
            "user": user,
        }
        limits = self._limits | {key: one for key, one in stated.items() if one is not None}
        binding = Binding(
            *(name, pool, weight, due, priority, slots, slots_max, attempts),
            **limits,
            resources=resources,
        )
        job = binding.job(grows=True)
        self._intake.check_job(job)
        if ahead is not None:
            check_whole("ahead", ahead)
        most = self.slots if slots_max is None else min(slots_max, self.slots)
        calls = self._submitter(self._intake, binding, grows=True)
        return SessionExecutor(calls, ahead or max(1, most // slots), self)

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        chunksize: int | None = None,
        ahead: int | None = None,
        **binding: Any,
    ) -> Iterator[T]:
        """The results of `fn` for the items of the iterables, in order, as one job.

        Items are read as results are taken. `ahead` tasks are submitted before that, by default
        four for each slot, so that memory is bounded also for endless iterables. A task makes
        `chunksize` calls; by default, as many as take about 10 ms. The other options are those
        of `executor`. If the iterator is closed, the remaining calls are cancelled.
        """
        check_mapping(fn, iterables, chunksize, ahead)
        check_names(f"{type(self).__name__}.map", binding, Binding.__dataclass_fields__)
        name = getattr(fn, "__name__", "")
        executor = self.executor(**{"name": name if name.isidentifier() else "map", **binding})
        most = AHEAD * self.slots if ahead is None else ahead
        return map_lazily(executor, fn, iterables, chunksize, max(1, most))

    def command(
        self,
        command: str | Sequence[str | Future[Any]],
        output: str | Path | None = None,
        *,
        id: str = "command",
        after: str | Future[Any] | Iterable[str | Future[Any]] = (),
        **options: Any,
    ) -> Future[str]:
        """Run a command in each task of a job: a list of words, or a string for /bin/sh.

        A future of this session as a word stands for its result, such as the folder of another
        command; the command waits for it.

        after   the jobs, by id or future, and the calls that must be done before it begins
        output  the folder for the output of tasks: `task-00000.out`, `task-00000.err` and so
                on. By default a temporary folder, which is removed when the session closes.
                Hosts on other machines need a folder that all of them see

        The result of the future is this folder. The other options are those of
        `slotwise.command`: `tasks`, `env`, `cwd`, `pool` and so on. The deadline and the
        promise may be a date and time, or a time of day, "17:00". InputError as for `run`.
        """
        intake, inputs = self._intake, CommandInputs.of(self._intake, command, after)
        for key in options.keys() & {"deadline", "promise"}:
            options[key] = seconds_until(f"job {id!r}: {key}", options[key])

        def described() -> CommandJob:
            return slotwise_command(inputs.words(), output, id=id, after=inputs.jobs, **options)

        entry = described()  # Refuses what is wrong before a folder is made.
        output = self._new_folder() if output is None else output
        if not inputs.calls:
            return self.run(described())
        future: Future[Any] = Future(intake)

        def run() -> None:
            self._run(described(), Path(), future)

        needs_all = entry.after_failed == "cancel"
        submit_after(intake, future, inputs.calls, run, needs_all=needs_all)
        return future

    def run(self, entry: Entry | Mapping[str, Any], *, folder: str | Path = ".") -> Future[Any]:
        """Run a job of any kind: a program, commands, `Calls`, or a `Job`, which sleeps.

        It may also be a mapping, like an entry of `jobs` in a workload file. It arrives now,
        and its deadline, promise and steps move with it. A number is appended to an id that was
        used before. The result of the future is that of the job: the results of `Calls`, the
        output of a program or of commands, or None. Relative paths begin at `folder`.
        InputError for a job that cannot be run, and PromiseRefused, with the earliest date that
        could be promised, for one whose promise cannot be kept. The future of a job that fails
        has a SlotwiseError with the reason.
        """
        return self._run(checked_entry(entry, folder, self.slots), folder)

    def change(
        self,
        future: Future[Any],
        *,
        priority: str | None = None,
        weight: float | None = None,
        pool: str | None = None,
        deadline: float | str | None = None,
    ) -> None:
        """Change the given properties of a job while it runs.

        `deadline` is in seconds from now, a duration, a date or a time. Running tasks continue.
        No effect on a job that is over. InputError for a value that no job can have.
        """
        given = checked_changes(self._intake, future, priority, weight, pool, deadline)
        self._change(future, given)

    @abstractmethod
    def _run(
        self, entry: Entry, folder: str | Path, waited: Future[Any] | None = None
    ) -> Future[Any]:
        """Run a job; `waited` is its future if it has waited for the results of calls."""

    @abstractmethod
    def _change(self, future: Future[Any], given: JobChanges) -> None:
        """Apply changes that were checked."""

    @abstractmethod
    def _new_folder(self) -> str:
        """A folder for the output of a command that states none."""

    @abstractmethod
    def close(self, *, cancels: bool = False) -> None:
        """Accept no more jobs, and wait for those that were submitted."""

    @property
    def slots(self) -> int:
        """The number of slots of all hosts that are present."""
        return self._intake.slots

    def jobs(self) -> SessionJobs:
        """The jobs now: those that are not over, in order of arrival, then the last that ended.

        It prints as a table, is a sequence of `SessionJob`, and is of one instant. Of a closed
        session it is the last state. At most `slotwise.sessions.views.ENDED_MAX` jobs that
        ended are listed; to wait for the others, read its `left`.
        """
        return self._intake.shown()

    def explain(self, job: str | Future[Any]) -> Explanation:
        """The slots that a job holds now, and why; the job is given by id or by a future.

        InputError for the id of a job that is not active.
        """
        return self._intake.explain(job)

    def eta(self, job: str | Future[Any], timeout: float = ETA_SECONDS) -> Eta | None:
        """When a job will start and end: ranges that hold it with the stated confidence.

        The job is given by id or by a future. Instants are Unix seconds, as of `time.time()`.
        The last forecast is returned, which says by `at` how old it is; for the first one of
        a new job it waits, at most `timeout` seconds. None if the job is over or not known, if
        a call has no job yet because it waits for others, or after the timeout.
        """
        return self._intake.eta(job, timeout)

    def etas(self) -> Mapping[str, Eta]:
        """The last forecast of each job that has one, by id, as of `eta`. It never waits."""
        return self._intake.etas()

    def what_if(
        self,
        job: Entry | Mapping[str, Any] | str | Sequence[str] | None = None,
        *,
        pools: Mapping[str, Any] | None = None,
        scheduler: str | None = None,
        hosts: Iterable[Host | Mapping[str, Any]] | Mapping[str, Any] = (),
        without_hosts: Sequence[str] = (),
        folder: str | Path = ".",
    ) -> WhatIf:
        """What a change would do, as `WhatIf`: the jobs that would end at another time.

        Both courses are simulated now, by the same random numbers. Nothing is changed.
        Instants are Unix seconds.

        job            a job that would arrive now: what `run` accepts, or a command
        pools          weights, or keys and values, of some of the present pools by name:
                       `{"team": 2}`, `{"team": {"slots_max": 5}}`
        scheduler      the name of another scheduler
        hosts          hosts that would join: `{"h9": 8}` is one with eight slots
        without_hosts  the names of hosts that would leave

        InputError if nothing would change, or for what the session could not have;
        PromiseRefused, with the earliest date, for a promise that could not be given.
        """
        self._intake.check_open(had_waited=False)
        asked = Asked(pools or {}, scheduler, hosts, without_hosts)
        if isinstance(job, str | Sequence):
            job = slotwise_command(job, id="new")
        elif isinstance(job, Mapping):
            job = {"id": "new", **job}
        return self._what_if(job, folder, asked)

    @abstractmethod
    def _what_if(
        self, job: Entry | Mapping[str, Any] | None, folder: str | Path, asked: Asked
    ) -> WhatIf:
        """What a change would do."""

    def _repr_html_(self) -> str:
        return self._intake.html()

    def __enter__(self) -> Self:
        self._intake.check_open(had_waited=False)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(cancels=kind is not None)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._intake.__reduce__()  # Raises InputError.


for _name, _function in list(vars(SessionMethods).items()):
    if isinstance(_function, FunctionType):  # Messages of Python name the public class.
        _function.__qualname__ = f"Session.{_name}"
