"""Map-only in another interpretation: a machine does not wait while it could work."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from slotwise.policy.dmrs.planning import map_only
from slotwise.policy.dmrs.problem import RelatedMachines, Run, Runs


def map_only_eager(problem: RelatedMachines) -> Runs:
    """The machines chosen by Map-only, but each runs the first of its tasks that can begin.

    `map-only` keeps a machine idle until its next reduce can begin. The paper's text does not
    state which of the two its Map-only did.
    """
    return eager(problem, map_only(problem))


def eager(problem: RelatedMachines, planned: Runs) -> Runs:
    """Each task on its planned machine, without idle time while one of its tasks could begin.

    O(n) for each task where machines have queues of n.
    """
    queues: list[list[Run]] = [[] for _ in problem.speed]
    for run in sorted(planned.runs, key=lambda run: (run.start, run.job, run.stage, run.task)):
        queues[run.machine].append(run)
    left = [[len(stage.work) for stage in job.stages] for job in problem.jobs]
    idle = set(range(len(queues)))
    runs: list[Run] = []

    def can_begin(run: Run, now: float) -> bool:
        job = problem.jobs[run.job]
        before = job.stages[run.stage].before
        return job.release <= now and all(left[run.job][other] == 0 for other in before)

    # The events: a release, or the end of a run.
    events: list[tuple[float, int, Run | None]] = [
        (at, -1, None) for at in {0.0, *problem.release.tolist()}
    ]
    heapify(events)
    while events:
        now = events[0][0]
        while events and events[0][0] == now:
            _, machine, ended = heappop(events)
            if ended is not None:
                left[ended.job][ended.stage] -= 1
                idle.add(machine)
        for machine in sorted(idle):
            queue = queues[machine]
            place = next((n for n, run in enumerate(queue) if can_begin(run, now)), None)
            if place is not None:
                task = queue.pop(place)
                work = problem.jobs[task.job].stages[task.stage].work[task.task]
                end = now + float(work / problem.speed[machine])
                runs.append(task._replace(start=now, end=end))
                heappush(events, (end, machine, runs[-1]))
                idle.discard(machine)
    return Runs.of(problem, runs)
