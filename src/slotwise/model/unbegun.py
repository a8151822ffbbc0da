"""The tasks that have not begun, as columns: for policies that plan all of them at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from slotwise.model.job import PhaseId
from slotwise.model.job_graphs import Ints, JobGraphs
from slotwise.model.views import PhaseView

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class UnbegunPhases:
    """The phases with tasks that have not begun: jobs by arrival, each in topological order.

    phases   these phases
    place    of each phase, by its name
    jobs     the place of each of their jobs, by name
    weight   of each job
    graphs   the jobs; a phase may wait for others here
    behind   the places of the phases here that wait for a phase, by its name
    follows  whether a phase waits for phases without such tasks
    """

    phases: Sequence[PhaseView]
    place: Mapping[PhaseId, int]
    jobs: Mapping[str, int]
    weight: Floats
    graphs: JobGraphs
    behind: Mapping[PhaseId, Sequence[int]]
    follows: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Unbegun:
    """The tasks that have not begun, of all admitted jobs that are not over.

    of          their phases
    count       the number of tasks of each phase
    task_first  the place of the first task of each phase, followed by the number of tasks
    tasks       the phase and the number of each task, phase after phase, by number
    number      the number of each task
    expected    the work of each task as estimated beforehand, seconds at speed 1
    largest     the places of the tasks, phase after phase, the largest first; ties by number
    """

    of: UnbegunPhases
    count: Sequence[int]
    task_first: Ints
    tasks: npt.NDArray[np.object_]
    number: Ints
    expected: Floats
    largest: Ints
