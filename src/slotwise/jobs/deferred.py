"""Jobs that read what other jobs write: they are planned when these are over."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from slotwise.core.errors import InputChanged, InputError
from slotwise.core.job import Job, Sizes
from slotwise.jobs.execution import Execution


class DeferredExecution(Execution):
    """A job that stands for another until its input can be examined.

    Its own phase is a placeholder. If it runs all the same, because the input cannot be used,
    it fails for that reason.
    """

    def __init__(
        self, job: Job, outputs: tuple[str, ...], plan: Callable[[], Execution]
    ) -> None:
        """`plan` returns the execution of the job. It may raise InputError."""
        self.job = job
        self._outputs, self._plan = outputs, plan
        self._planned: Execution | None = None
        self._obstacle = "its input was not examined"

    def is_ready(self, wake: Callable[[], None]) -> bool:
        """Whether `planned` returns soon. If not, `wake` is called when it does."""
        return True

    def planned(self) -> Execution:
        """The execution of the job, locked for it, or this one if it cannot be planned."""
        try:
            found = self._plan()
            found.open()
        except InputError as error:
            self._obstacle = str(error)
            return self
        self._planned = found
        return found

    def runner(self) -> None:
        """Never called, because there are no arguments for it."""

    @property
    def output(self) -> str:
        """The folder that the job writes to, once it is planned."""
        return "" if self._planned is None else self._planned.output

    @property
    def outputs(self) -> tuple[str, ...]:
        """The folders that the job will write to."""
        return self._outputs

    @property
    def result(self) -> object:
        """The result of the job, once it is planned."""
        return None if self._planned is None else self._planned.result

    @property
    def program(self) -> str:
        """The name of the program once it is planned."""
        return "" if self._planned is None else self._planned.program

    @property
    def sizes(self) -> Mapping[str, Sizes]:
        """The bytes of the tasks once they are known."""
        return {} if self._planned is None else self._planned.sizes

    def known_as(self, phase: str) -> tuple[str, str]:
        """The names of a phase in histories, once it is planned."""
        own = super().known_as(phase)
        return own if self._planned is None else self._planned.known_as(phase)

    def arguments(self, phase: str, task: int, attempt: int) -> tuple[object, ...]:
        """Raise InputChanged: further attempts would fail, too."""
        raise InputChanged(self._obstacle)
