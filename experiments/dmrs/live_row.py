"""A row of the live figure of DMRS."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DmrsLiveRow:
    """One live run of the jobs of an experiment.

    twct, bound  total weighted completion time, weight x seconds; its lower bound for the task
                 durations of this run
    over_bound   their ratio
    gain         1 - DMRS's ratio / this one's, in the same experiment
    slow_speed   of the slow host relative to the fast one, measured by the tasks of the run
    """

    experiment: int
    scheduler: str
    twct: float
    bound: float
    over_bound: float
    gain: float
    slow_speed: float
