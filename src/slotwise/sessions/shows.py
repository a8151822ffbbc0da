"""How a session shows its jobs, in Python and in notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from slotwise.analysis.explain import explain_state
from slotwise.analysis.explanation import Explanation, Explanations
from slotwise.model.errors import InputError
from slotwise.model.job import PhaseId
from slotwise.programs.execution import Execution
from slotwise.report.notebook_progress import notebook_display
from slotwise.report.session_table import ROWS_MOST, ShownJob, ShownSession, session_html
from slotwise.runtime.state import State
from slotwise.sessions.calls import PHASE, OpenCalls
from slotwise.sessions.checking import part_of_session
from slotwise.sessions.futures import Future
from slotwise.sessions.loop_thread import LoopThread
from slotwise.sessions.notebook import LiveDisplay


@part_of_session
class ShowsJobs:
    """The part of a session that shows its jobs."""

    _loop: LoopThread
    _state: State
    _scheduler_name: str
    _turns: int
    _over: int
    _waiting: int
    _is_closed: bool
    _calls: Mapping[str, OpenCalls]
    _jobs: Mapping[str, tuple[Future[Any], Execution]]
    _display: LiveDisplay | None = None

    def jobs(self) -> Explanations:
        """The jobs that are not over, in order of arrival: what each holds, and why.

        The list prints as a table.
        """
        return self._loop.ask(lambda: Explanations(map(self._explained, self._names_left())))

    def explain(self, job: str | Future[Any]) -> Explanation:
        """The slots that a job holds now, and why; the job may be given by a future.

        InputError for the id of a job that is not under way.
        """
        if isinstance(job, Future) and not job.is_of(self):
            raise InputError("this future is of another session; call its own `explain`")
        name = job.job if isinstance(job, Future) else job

        def explain() -> Explanation:
            found = self._explained(name)
            if found.phases:
                return found
            if not isinstance(job, Future) and not (name in self._calls or name in self._jobs):
                raise InputError(
                    f"no job {name!r} is under way; jobs() of the session lists those that are"
                )
            is_waiting = isinstance(job, Future) and not name and not job.done()
            text = "waits for the results of other calls" if is_waiting else "over"
            return replace(found, status=text)

        return self._loop.ask(explain)

    def shown_job(self, job: str) -> ShownJob | None:
        """A job with the numbers of its tasks; None if it is over or has not arrived."""
        return self._loop.ask(lambda: self._shown(job) if self._state.phases_of(job) else None)

    def progress(self, job: str, task: int) -> tuple[float, float | None] | None:
        """What a call that runs has reported; None unless it runs and has reported."""
        phase = PhaseId(job, PHASE)
        return self._loop.ask(lambda: self._loop.backend.progress(phase, task))

    def __repr__(self) -> str:
        slots = sum(self._state.cluster.capacity.values())
        state = "closed" if self._is_closed else "open"
        return f"<Session of {slots} slots under {self._scheduler_name}: {state}>"

    def _repr_html_(self) -> str:
        return session_html(self._loop.ask(self._shown_session))

    def _ipython_display_(self) -> None:
        show = notebook_display()
        if show is None:  # IPython in a terminal: it shows the `repr`.
            raise NotImplementedError
        if self._display is not None:
            self._display.close()
        self._display = LiveDisplay(show, self._repr_html_, lambda: self._turns)
        if self._is_closed:
            self._display.close()

    # In the thread of the loop.

    def _names_left(self) -> Iterator[str]:
        yield from (phases[0].job.id for phases in self._state.jobs_left())
        yield from self._state.awaiting_admission

    def _explained(self, job: str) -> Explanation:
        phases = self._state.phases_of(job)
        pool = phases[0].job.pool if phases else ""
        return explain_state(self._state, job, pool, self._scheduler_name)

    def _shown(self, job: str) -> ShownJob:
        phases = self._state.phases_of(job)
        tasks = sum(phase.phase.tasks.count for phase in phases)
        running = sum(len(phase.launches) for phase in phases)
        return ShownJob(self._explained(job), tasks, running)

    def _shown_session(self) -> ShownSession:
        jobs = [self._shown(job) for job in islice(self._names_left(), ROWS_MOST)]
        state, kinds = self._state, self._state.cluster.capacity
        slots = sum(state.capacity(kind) for kind in kinds)
        free = sum(sum(state.free(kind).values()) for kind in kinds)
        return ShownSession(
            self._scheduler_name,
            not self._is_closed,
            slots,
            max(0, slots - free),
            jobs,
            sum(1 for _ in self._names_left()),
            self._over,
            self._waiting,
        )
