"""Jobs made of plain Python calls, and jobs that sleep."""

from __future__ import annotations

import inspect
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slotwise import task as running
from slotwise.core.errors import InputError, shown
from slotwise.core.job import Job
from slotwise.jobs.execution import Execution, LostInputError
from slotwise.jobs.transfer import Handle, TransferFolders, discard, exists, get, put

Function = Callable[[int], object] | Callable[[int, "Results"], object]
"""The function of a phase. It may take the results of the phases that its phase waits for."""

Results = Mapping[str, "PhaseResults"]
"""The results of the phases that a phase waits for, by name."""


class PhaseResults(Sequence[Any]):
    """The results of all tasks of a phase, by the number of the task.

    A result is loaded on first use. Raises LostInputError if files of results are lost; `check`
    raises it again.
    """

    def __init__(self, phase: str, given: Handle) -> None:
        self._phase = phase
        try:
            self._handles: Sequence[Handle] = get(given)
        except OSError as error:
            if exists(given):
                raise
            raise LostInputError(phase, (), given.path) from error
        self._loaded: dict[int, object] = {}
        self._lost: LostInputError | None = None

    def check(self) -> None:
        """Raise LostInputError if results could not be loaded because their files are lost."""
        if self._lost is not None:
            raise self._lost

    def __len__(self) -> int:
        return len(self._handles)

    def __getitem__(self, task: Any) -> Any:
        if isinstance(task, slice):
            return [self[number] for number in range(len(self))[task]]
        number = range(len(self))[task]
        if number not in self._loaded:
            try:
                self._loaded[number] = get(self._handles[number])
            except OSError:
                self._lost = LostInputError.of(self._phase, self._files_lost())
                self.check()
                raise
        return self._loaded[number]

    def _files_lost(self) -> Iterator[tuple[int, int, str]]:
        """Yield task, attempt and path of each lost file; its name contains the attempt."""
        for task, handle in enumerate(self._handles):
            if not exists(handle):
                yield task, int(handle.path.rpartition("-")[2]), handle.path


@dataclass(frozen=True, slots=True)
class _Dispatch:
    """Calls the function of a phase with a task number and registers its preemption hook.

    takers   the phases whose functions take results
    folders  the folders for large results that are passed on
    """

    functions: Mapping[str, Function]
    takers: frozenset[str]
    folders: tuple[str, ...]

    def __call__(
        self, phase: str, task: int, file: str = "", given: Mapping[str, Handle] | None = None
    ) -> object:
        """Return the result, or its handle if it is passed on. Large ones go to `file`."""
        function: Callable[..., object] = self.functions[phase]
        running.on_stop_request(getattr(function, "on_preempt", None))
        if phase in self.takers:
            found = {name: PhaseResults(name, handle) for name, handle in (given or {}).items()}
            try:
                result = function(task, found)
            finally:  # The function may have caught the error.
                for results in found.values():
                    results.check()
        else:
            result = function(task)
        return put(result, self.folders, file) if file else result


class Calls(Execution):
    """A job in which each task is one call, `functions[phase](task)`, in a worker process.

    A function with a second parameter without a default is called with the results of the
    phases that its phase waits for: `function(task, results)`, where `results[phase][task]` is
    the return value of a task. These results pass from worker to worker, and large arrays in
    them are not copied.

    The attribute `results[phase][task]` holds the return values of all calls. A function may
    use `slotwise.task`. If it has an attribute `on_preempt`, this is called with the seconds
    left when the task is asked to stop. Raises InputError for a phase without a function, for a
    function without a phase, and for a phase that takes results and begins before they are
    complete.
    """

    unpickles = True

    def __init__(self, job: Job, functions: Mapping[str, Function] | Function) -> None:
        if not isinstance(job, Job):
            raise InputError(f"Calls: job is {shown(job)}; give a slotwise.Job")
        if not callable(functions) and not isinstance(functions, Mapping):
            raise InputError(
                f"job {job.id!r}: functions is {shown(functions)}; give a function, or one for"
                " each phase by its name"
            )
        if callable(functions):  # One function serves every phase.
            functions = dict.fromkeys(job.by_name, functions)
        for name in sorted(job.by_name.keys() ^ functions.keys()):
            lacks = "has no function" if name in job.by_name else "is not a phase of the job"
            raise InputError(
                f"job {job.id!r}: {name!r} {lacks}; give one function for each phase"
            )
        for name, function in functions.items():
            if not callable(function):
                raise InputError(
                    f"job {job.id!r}: the function of phase {name!r} is {shown(function)}; give"
                    " a function"
                )
        takers = {phase.name: phase for phase in job.phases if _takes(functions[phase.name])}
        for name, phase in takers.items():
            if phase.slow_start < 1:
                raise InputError(
                    f"job {job.id!r}: the function of phase {name!r} takes results, but its"
                    f" slow_start is {phase.slow_start:g}; leave slow_start out"
                )
        self.job = job
        self._takers = takers
        self._gangs = {phase.name for phase in job.phases if phase.is_gang}
        self._folders = TransferFolders()
        self._numbers = {phase.name: number for number, phase in enumerate(job.phases)}
        # The results that are passed on, by phase; the manager does not unpickle them.
        self._passed: dict[str, dict[int, Handle]] = {
            name: {} for phase in takers.values() for name in phase.after
        }
        self._given: dict[str, Handle] = {}  # all results of a phase that is complete
        self._losses: Counter[str] = Counter()  # by phase
        self.runner: Callable[..., object] = _Dispatch(
            dict(functions), frozenset(takers), self._folders.paths
        )
        self.results: dict[str, Mapping[int, object]] = {
            name: _LazyResults(self._passed[name]) if name in self._passed else {}
            for name in functions
        }

    @property
    def result(self) -> object:
        """The results of all calls."""
        return self.results

    def arguments(self, phase: str, task: int, attempt: int) -> tuple[object, ...]:
        """Return the phase, the task number and, if results are passed, file and handles."""
        is_passed = phase in self._passed
        if not (is_passed or phase in self._takers):
            return (phase, task)
        self._folders.open(self.job.id)
        file = self._file(phase, task, attempt) if is_passed else ""
        after = self._takers[phase].after if phase in self._takers else ()
        return (phase, task, file, {name: self._all_of(name) for name in sorted(after)})

    def finished(self, phase: str, task: int, attempt: int, result: object) -> None:
        """Store the result of the first attempt that finishes, or of the last one of a gang."""
        if phase not in self._passed:
            stored = self.results[phase]
            assert isinstance(stored, dict)
            if phase in self._gangs:
                stored[task] = result
            stored.setdefault(task, result)
            return
        assert isinstance(result, Handle)
        if self._passed[phase].setdefault(task, result) is not result:
            self.discard(phase, task, attempt)

    def discard(self, phase: str, task: int, attempt: int) -> None:
        """Remove the file of a large result of an attempt, if there is one."""
        if phase in self._passed:
            file = self._file(phase, task, attempt)
            winner = self._passed[phase].get(task)
            if winner is None or os.path.basename(winner.path) != file:
                discard(self._folders.paths, file)

    def lose(self, phase: str, tasks: Collection[int]) -> Collection[int]:
        """Forget results in files, and the list of all results. Returns their tasks."""
        passed = self._passed.get(phase, {})
        lost = [task for task in tasks if task in passed and passed[task].path]
        for task in lost:
            del passed[task]
        self._given.pop(phase, None)
        self._losses[phase] += 1
        return lost

    def close(self, succeeded: bool) -> None:
        """Remove the files of a job that has failed.

        Files of a job that succeeded are removed with this object: `results` reads them.
        """
        if not succeeded:
            self._folders.remove()

    def _file(self, phase: str, task: int, attempt: int) -> str:
        return f"{self._numbers[phase]}-{task}-{attempt}"

    def _all_of(self, phase: str) -> Handle:
        """Return a handle of the list of all handles of a complete phase."""
        if phase not in self._given:
            passed = self._passed[phase]
            handles = [passed[task] for task in range(self.job.by_name[phase].tasks.count)]
            file = f"{self._numbers[phase]}-all-{self._losses[phase]}"
            self._given[phase] = put(handles, self._folders.paths, file)
        return self._given[phase]


class _LazyResults(Mapping[int, object]):
    """The results of tasks, by number; each is loaded from its handle on first use."""

    def __init__(self, handles: Mapping[int, Handle]) -> None:
        self._handles = handles
        self._loaded: dict[int, object] = {}

    def __getitem__(self, task: int) -> object:
        if task not in self._loaded:
            self._loaded[task] = get(self._handles[task])
        return self._loaded[task]

    def __len__(self) -> int:
        return len(self._handles)

    def __iter__(self) -> Iterator[int]:
        return iter(self._handles)


def _takes(function: Function) -> bool:
    """Return whether a function has a second positional parameter without a default."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False  # A function in native code may have no signature.
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [one for one in parameters if one.kind in kinds and one.default is one.empty]
    return len(required) >= 2


class Sleep(Execution):
    """A synthetic job: each task sleeps for the seconds given as the work of its phase.

    On an emulated host of speed s it sleeps 1 / s times as long, because the pauses that slow
    computation on such a host do not slow a sleep. A task that is asked to stop stops at once;
    its next attempt sleeps only the remainder.
    Raises InputError for a phase without `work`.
    """

    sleeps = True

    def __init__(self, job: Job) -> None:
        for phase in job.phases:
            if phase.tasks.work is None:
                raise InputError(
                    f"job {job.id!r}: phase {phase.name!r} has no work, so the time to sleep is"
                    " unknown; give `work`"
                )
        self.job = job
        self.runner: Callable[..., object] = running.sleep

    def arguments(self, phase: str, task: int, attempt: int) -> tuple[object, ...]:
        """Return the seconds to sleep."""
        work = self.job.by_name[phase].tasks.work_of(task)
        assert work is not None
        return (work,)

    def describe(self, phase: str, task: int) -> str:
        """Return a description of the task for messages."""
        return f"{phase} task {task} of job {self.job.id} (it sleeps)"
