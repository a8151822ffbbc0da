"""Jobs whose phases are commands and programs: each of these has an execution of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from slotwise.core.job import Job, Phase, Sizes
from slotwise.core.rates import COMMAND_MARK, Rates
from slotwise.jobs.command_process import ENDING_SECONDS
from slotwise.jobs.commands import PHASE
from slotwise.jobs.execution import Execution, LostInputError


def phase_name(part: str, phase: str) -> str:
    """The name in the job of a phase of a part: a command has only one, a program several."""
    return part if phase == PHASE else f"{part}.{phase}"


@dataclass(frozen=True, slots=True)
class PhasedRunner:
    """Runs the tasks of all parts in a worker process."""

    runners: Mapping[str, Callable[..., object]]

    def __call__(self, part: str, *arguments: object) -> object:
        """Run a task of a part. Lost output is reported by the names of phases in the job."""
        try:
            return self.runners[part](*arguments)
        except LostInputError as lost:
            name = phase_name(part, lost.phase)
            raise LostInputError(name, lost.outputs, lost.place, lost.why) from None


class PhasedExecution(Execution):
    """The execution of a job of several parts; created by `plan_phases`.

    The output of a part appears when all its tasks have succeeded, so that later parts can read
    it. It stays if the job fails afterwards. The output of the part that ends last is committed
    with the job.
    """

    is_shown = False
    waits = True
    ending_seconds = ENDING_SECONDS

    def __init__(self, job: Job, parts: Mapping[str, Execution]) -> None:
        self.job = job
        self.runner = PhasedRunner({name: part.runner for name, part in parts.items()})
        self._parts = parts
        self._places = {
            phase_name(name, phase): (name, phase)
            for name, part in parts.items()
            for phase in part.job.by_name
        }
        self._done: dict[str, set[tuple[str, int]]] = {name: set() for name in parts}
        self._counts = {
            name: sum(phase.tasks.count for phase in part.job.phases)
            for name, part in parts.items()
        }

    @property
    def outputs(self) -> tuple[str, ...]:
        """The folders of all parts."""
        return tuple(folder for part in self._parts.values() for folder in part.outputs)

    @property
    def result(self) -> object:
        """The folder of each part that has one, by name; None if there is none."""
        return {name: one.output for name, one in self._parts.items() if one.output} or None

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders of all parts."""
        return tuple(folder for part in self._parts.values() for folder in part.folders)

    @property
    def program(self) -> str:
        """The names of the parts. Histories know each part as if it were a job of its own."""
        return f"{COMMAND_MARK}{', '.join(self._parts)}"

    @property
    def sizes(self) -> Mapping[str, Sizes]:
        """The sizes of the tasks of all parts."""
        return {
            phase_name(name, phase): sizes
            for name, part in self._parts.items()
            for phase, sizes in part.sizes.items()
        }

    def known_as(self, phase: str) -> tuple[str, str]:
        """The command or the program of the part, and the name of the phase in it."""
        part, name = self._of(phase)
        return part.known_as(name)

    def estimated(self, rates: Rates) -> Job:
        """The job with the estimates of its parts."""
        known = {name: part.estimated(rates).by_name for name, part in self._parts.items()}
        places = ((phase, *self._places[phase.name]) for phase in self.job.phases)
        phases = (replace(one, tasks=known[part][name].tasks) for one, part, name in places)
        return replace(self.job, phases=tuple(phases))

    def open(self) -> None:
        """Open all parts, or none."""
        with ExitStack() as stack:
            for part in self._parts.values():
                part.open()
                stack.callback(part.close, succeeded=False)
            stack.pop_all()

    def begins_at(self, phase: str, task: int, attempt: int, address: str) -> bool:
        """Ask the part."""
        part, name = self._of(phase)
        return part.begins_at(name, task, attempt, address)

    def arguments(self, phase: str, task: int, attempt: int) -> tuple[object, ...]:
        """Return the name of the part, and what its runner gets."""
        part, name = self._of(phase)
        return (self._places[phase][0], *part.arguments(name, task, attempt))

    def output_files(self, phase: str, task: int, attempt: int) -> tuple[str, ...]:
        """Return the files of the part."""
        part, name = self._of(phase)
        return part.output_files(name, task, attempt)

    def describe(self, phase: str, task: int) -> str:
        """Return the description of the part, with the name of the phase."""
        part, name = self._of(phase)
        return f"phase {phase}, {part.describe(name, task)}"

    def finished(self, phase: str, task: int, attempt: int, result: object) -> None:
        """Store the result; commit the part if it is done and others are not."""
        part, name = self._of(phase)
        part.finished(name, task, attempt, result)
        whole = self._places[phase][0]
        self._done[whole].add((name, task))
        if self._is_done(whole) and not all(map(self._is_done, self._parts)):
            part.close(succeeded=True)

    def waited(self, phase: str, task: int, attempt: int) -> float:
        """Ask the part."""
        part, name = self._of(phase)
        return part.waited(name, task, attempt)

    def lose(self, phase: str, tasks: Collection[int]) -> Collection[int]:
        """Forget the lost intermediate output of a program."""
        part, name = self._of(phase)
        lost = part.lose(name, tasks)
        self._done[self._places[phase][0]].difference_update((name, task) for task in lost)
        return lost

    def discard(self, phase: str, task: int, attempt: int) -> None:
        """Remove the files of an attempt of the part."""
        part, name = self._of(phase)
        part.discard(name, task, attempt)

    def close(self, succeeded: bool) -> None:
        """Close all parts; those that were committed before are left as they are."""
        with ExitStack() as stack:
            for part in self._parts.values():
                stack.callback(part.close, succeeded=succeeded)

    def _of(self, phase: str) -> tuple[Execution, str]:
        """The part of a phase of the job, and the name of the phase in it."""
        part, name = self._places[phase]
        return self._parts[part], name

    def _is_done(self, part: str) -> bool:
        return len(self._done[part]) == self._counts[part]


def plan_phases(
    job_id: str,
    parts: Mapping[str, Execution],
    before: Mapping[str, Collection[str]],
    **about: Any,
) -> PhasedExecution:
    """Join the executions of commands and programs to one job. Nothing is written yet.

    `before` has the parts that each part waits for. `about` holds the other fields of the
    `Job`. Raises InputError if two phases have the same name.
    """
    last = {name: _last_phases(name, part.job) for name, part in parts.items()}
    phases: list[Phase] = []
    for name, part in parts.items():
        ended = frozenset(one for other in before[name] for one in last[other])
        for phase in part.job.phases:
            inner = frozenset(phase_name(name, one) for one in phase.after)
            is_first = not inner and phase.continues is None
            continued = phase.continues and phase_name(name, phase.continues)
            own = phase_name(name, phase.name)
            waits_for = ended if is_first else inner
            phases.append(replace(phase, name=own, after=waits_for, continues=continued))
    return PhasedExecution(Job(job_id, tuple(phases), **about), parts)


def _last_phases(name: str, job: Job) -> list[str]:
    """The phases of a part that none of its others waits for, by their names in the job."""
    waited_for = {one for phase in job.phases for one in phase.waits_for}
    return [phase_name(name, one) for one in job.by_name if one not in waited_for]
