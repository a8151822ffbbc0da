"""The true durations of tasks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slotwise.model.decision import Launch
from slotwise.model.errors import InputError
from slotwise.model.job import Job, PhaseId
from slotwise.runtime.simulated.simulation import Simulation


class ActualDurations:
    """The true work of all tasks, drawn for a whole phase when first needed.

    It depends only on the seed, the job, the phase and the number of a task, not on the order
    of launches: all schedulers in a comparison get the same tasks.
    """

    def __init__(self, jobs: Sequence[Job], simulation: Simulation) -> None:
        self._seed, self._noise = simulation.seed, simulation.noise
        self._phases = {
            PhaseId(job.id, phase.name): (number, place, phase)
            for number, job in enumerate(jobs)
            for place, phase in enumerate(job.phases)
        }
        self._works: dict[PhaseId, list[float]] = {}
        self._kept: dict[tuple[PhaseId, int], float] = {}

    def work_of(self, launch: Launch) -> float:
        """The work of an attempt, in seconds at speed 1, without what was kept."""
        works = self._works.get(launch.phase)
        if works is None:
            works = self._works[launch.phase] = self.draw(launch.phase)
        work = works[launch.task]
        if self._kept:
            work -= self._kept.get((launch.phase, launch.task), 0.0)
        return work

    def draw(self, phase_id: PhaseId) -> list[float]:
        """The work of each task of a phase, in seconds at speed 1. InputError if not stated."""
        number, place, phase = self._phases[phase_id]
        tasks = phase.tasks
        if tasks.work is None:
            raise InputError(
                f"phase {phase_id}: a simulation needs the work of its tasks; state its work"
            )
        work = np.broadcast_to(np.asarray(tasks.work, dtype=float), tasks.count)
        if self._noise > 0:
            rng = np.random.default_rng([self._seed, number, place])
            spread = self._noise * rng.standard_normal(tasks.count)
            work = work * np.exp(spread - self._noise**2 / 2)
        drawn: list[float] = work.tolist()
        return drawn

    def forget(self, phase: PhaseId, task: int) -> None:
        """Forget the kept work of a task, which is to be done again as a whole."""
        self._kept.pop((phase, task), None)

    def keep(self, phase: PhaseId, task: int, work: float) -> None:
        """Add to the kept work of a task, which need not be done again."""
        if work:
            self._kept[phase, task] = self._kept.get((phase, task), 0.0) + work
