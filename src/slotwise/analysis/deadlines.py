"""What became of deadlines and agreements: metrics of the jobs that are done."""

from __future__ import annotations

from collections.abc import Mapping

from slotwise.model.job import Job
from slotwise.objective.cost import Steps, is_met


def deadline_metrics(
    jobs: Mapping[str, Job], completion: Mapping[str, float]
) -> dict[str, float | None]:
    """Tardy jobs, tardiness and lateness, and the cost of agreements, by the names of metrics.

    Over the jobs that have a completion time. Those of deadlines are None where none of them
    has a deadline, and that of agreements is None where none has steps.
    """
    due = {name: at for name in completion if (at := jobs[name].deadline) is not None}
    # A deadline that is met but for rounding is met: then nothing is tardy, by no metric.
    tardy = {
        name: completion[name] - at
        for name, at in due.items()
        if not is_met(at, completion[name])
    }
    late = [completion[name] - at for name, at in due.items()]
    agreed = [name for name in completion if jobs[name].steps]
    costs = [Steps(jobs[name].steps).at(completion[name]) for name in agreed]
    return {
        "jobs_tardy": len(tardy) if due else None,
        "jobs_tardy_weighted": sum(jobs[name].weight for name in tardy) if due else None,
        "tardiness_mean": sum(tardy.values()) / len(due) if due else None,
        "tardiness_max": max(tardy.values(), default=0.0) if due else None,
        "lateness_max": max(late, default=None),
        "sla_cost": sum(costs) if costs else None,
    }
