"""List schedules with gaps filled, task by task, as one reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slotwise.policy.dmrs.problem import RelatedMachines, Run, Runs


@dataclass
class Gap:
    """A time in which a machine waits for a stage."""

    machine: int
    start: float
    end: float


def list_with_gaps(problem: RelatedMachines, order: Sequence[int]) -> Runs:
    """`list_jobs`, but a task may run in a gap if it is completed first there.

    Of equal completions, machines come before gaps, then the lower number. Gaps that are too
    short for the smallest task of all are forgotten.
    """
    free, gaps, runs = problem.free.tolist(), list[Gap](), list[Run]()
    speed = problem.speed.tolist()
    smallest = min(float(stage.work.min()) for job in problem.jobs for stage in job.stages)

    def keep(gap: Gap) -> None:
        if (gap.end - gap.start) * speed[gap.machine] >= smallest:
            gaps.append(gap)

    for number in order:
        job, ends = problem.jobs[number], list[float]()
        for place, stage in enumerate(job.stages):
            ready = max(job.release, stage.ready, *(ends[other] for other in stage.before))
            last = 0.0
            for task in stage.largest_first:
                work = float(stage.work[task])
                on = min(range(len(free)), key=lambda i: max(free[i], ready) + work / speed[i])
                best, gap = max(free[on], ready) + work / speed[on], None
                for one in gaps:
                    done = max(one.start, ready) + work / speed[one.machine]
                    if done < best and done <= one.end:
                        best, gap = done, one
                if gap is None:
                    begin = max(free[on], ready)
                    rest = Gap(on, free[on], begin)
                    free[on] = best
                else:
                    on, begin = gap.machine, max(gap.start, ready)
                    rest, gap.end = Gap(on, best, gap.end), begin
                    if (gap.end - gap.start) * speed[on] < smallest:
                        place_of = gaps.index(gap)
                        gaps[place_of] = gaps[-1]
                        gaps.pop()
                keep(rest)
                runs.append(Run(number, place, task, on, begin, best))
                last = max(last, best)
            ends.append(last)
    return Runs.of(problem, runs)
