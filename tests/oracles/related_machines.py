"""What is known of whole tasks on machines of different speeds, computed in slow, plain ways.

The linear program of DMRS with all of its inequalities, and by cutting planes; the optimum of
tiny problems by trying every schedule. HiGHS, through scipy, solves the programs. None of it
uses how slotwise lists tasks, or how it solves the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, combinations
from random import Random

import numpy as np
from scipy.optimize import linprog

from slotwise.core.costs import Floats
from slotwise.policy.dmrs.problem import NumericJob, RelatedMachines, Stage

VIOLATED = 1e-10
"""Relative to the right side; what misses it by less is rounding."""

PRECISE = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
"""The most that HiGHS offers."""


def drawn(
    random: Random,
    jobs: int,
    machines: int,
    tasks: int = 6,
    released: float = 0.0,
    dags: bool = False,
) -> RelatedMachines:
    """Jobs of maps and reduces, or of up to five stages, with up to `tasks` tasks a stage.

    released  the latest release; half of the jobs are there at 0
    """
    speed = [
        random.choice([0.25, 0.5, 1.0, 1.0, random.uniform(0.2, 3)]) for _ in range(machines)
    ]

    def stage(before: Iterable[int]) -> Stage:
        size = random.uniform(0.5, 20)
        equal = random.random() < 0.3
        work = [
            size * (1 if equal else random.uniform(0.1, 2))
            for _ in range(random.randint(1, tasks))
        ]
        return Stage(np.array(work), tuple(before))

    def job() -> NumericJob:
        count = random.randint(1, 5) if dags else 2
        stages = [
            stage(
                sorted(random.sample(range(place), random.randint(0, min(2, place))))
                if dags
                else range(place)
            )
            for place in range(count)
        ]
        release = random.choice([0.0, random.uniform(0, released)]) if released else 0.0
        return NumericJob(tuple(stages), release, random.choice([1.0, random.uniform(0.2, 5)]))

    return RelatedMachines(np.array(speed), [job() for _ in range(jobs)])


# The parts of the program, from their definitions.


def work_of(job: NumericJob) -> float:
    """P_j."""
    return float(sum(stage.work.sum() for stage in job.stages))


def speed_of(problem: RelatedMachines, tasks: int) -> float:
    """Of the fastest machines, as many as there are tasks."""
    return sum(sorted(problem.speed.tolist(), reverse=True)[:tasks])


def paper_alone(problem: RelatedMachines, job: NumericJob) -> float:
    """P_j^2 / (2 mu_j); of maps and reduces one stage runs at a time, else perhaps all."""
    counts = [len(stage.work) for stage in job.stages]
    is_chain = all(
        stage.before == tuple(range(place))[-1:] for place, stage in enumerate(job.stages)
    )
    at_once = max(counts) if is_chain else sum(counts)
    return work_of(job) ** 2 / (2 * speed_of(problem, at_once))


def wrong_alone(problem: RelatedMachines, job: NumericJob) -> float:
    """As if a job could have the fastest machine only: more than every schedule keeps."""
    return work_of(job) ** 2 / (2 * max(problem.speed.tolist()))


def alone_with_tails(problem: RelatedMachines, job: NumericJob) -> float:
    """Of each stage its work times what is left of the job in the mean when it is done.

    Or the term of the paper, where that is more.
    """
    total = 0.0
    for place, stage in enumerate(job.stages):
        spread = float(stage.work.sum()) / speed_of(problem, len(stage.work))
        behind = [
            longest(problem, job, other)
            for other, later in enumerate(job.stages)
            if place in later.before
        ]
        total += float(stage.work.sum()) * (spread / 2 + max(behind, default=0.0))
    return max(total, paper_alone(problem, job))


def longest(problem: RelatedMachines, job: NumericJob, place: int) -> float:
    """The least time from when a stage may begin to the end of its job."""
    stage = job.stages[place]
    own = max(
        float(stage.work.sum()) / speed_of(problem, len(stage.work)),
        float(stage.work.max()) / max(problem.speed.tolist()),
    )
    behind = [
        longest(problem, job, other)
        for other, later in enumerate(job.stages)
        if place in later.before
    ]
    return own + max(behind, default=0.0)


def soonest(problem: RelatedMachines, job: NumericJob) -> float:
    """The right side of (7)."""
    return job.release + max(longest(problem, job, place) for place in range(len(job.stages)))


Alone = Callable[[RelatedMachines, NumericJob], float]
"""A_j, by which a job alone counts in (2)."""


class Inequalities:
    """(2) for every set of jobs, and (7)."""

    def __init__(self, problem: RelatedMachines, alone: Alone = paper_alone) -> None:
        self.weight = problem.weight
        self.work = np.array([work_of(job) for job in problem.jobs])
        self.alone = np.array([alone(problem, job) for job in problem.jobs])
        self.soonest = np.array([soonest(problem, job) for job in problem.jobs])
        self.mu = float(problem.speed.sum())

    def needed(self, chosen: Sequence[int]) -> float:
        """The right side of (2)."""
        inside = list(chosen)
        return float(self.alone[inside].sum() + self.work[inside].sum() ** 2 / (2 * self.mu))

    def violation(self, chosen: Sequence[int], completion: Floats) -> float:
        """(8): by how much the inequality of a set of jobs is missed."""
        inside = list(chosen)
        return self.needed(chosen) - float(self.work[inside] @ completion[inside])

    def most_violated(self, completion: Floats) -> tuple[int, ...] | None:
        """The set of jobs whose inequality (2) misses most, or None where all hold (Lemma 1).

        It holds the jobs with C_k - A_k / P_k below a threshold; so only prefixes in the order
        of this key are looked at. With the A_k of the paper it is C_k - P_k / (2 mu_k).
        """
        order = np.argsort(completion - self.alone / self.work).tolist()
        prefixes = [tuple(sorted(order[:end])) for end in range(1, len(order) + 1)]
        worst = max(prefixes, key=lambda chosen: self.violation(chosen, completion))
        missed = self.violation(worst, completion)
        return worst if missed > VIOLATED * self.needed(worst) else None

    def solve(self, sets: Sequence[tuple[int, ...]]) -> tuple[float, Floats]:
        """The least weighted sum of completions under (7) and (2) of these sets."""
        # In completions over a time near the optimum and rows near 1: HiGHS works to 1e-10.
        unit = float(self.soonest.max() + self.work.sum() / self.mu)
        rows = np.zeros((len(sets), len(self.work)))
        for row, chosen in zip(rows, sets, strict=True):
            row[list(chosen)] = self.work[list(chosen)]
        scale = rows.sum(axis=1)
        limits = np.array([self.needed(chosen) for chosen in sets])
        found = linprog(
            self.weight,
            A_ub=-rows / scale[:, None],
            b_ub=-limits / scale / unit,
            bounds=[(earliest / unit, None) for earliest in self.soonest],
            options=PRECISE,
        )
        assert found.status == 0, found.message
        return float(found.fun * unit), found.x * unit


def subsets(count: int) -> list[tuple[int, ...]]:
    """All but the empty one."""
    sizes = range(1, count + 1)
    return list(chain.from_iterable(combinations(range(count), size) for size in sizes))


def by_all_sets(problem: RelatedMachines, alone: Alone = paper_alone) -> float:
    """The value of the program with each of its 2^N inequalities."""
    return Inequalities(problem, alone).solve(subsets(len(problem)))[0]


def by_cutting_planes(
    problem: RelatedMachines, alone: Alone = paper_alone
) -> tuple[float, int]:
    """The value of the program, by the inequalities that are violated; and how many rounds."""
    program = Inequalities(problem, alone)
    cuts: list[tuple[int, ...]] = [(number,) for number in range(len(problem))]
    rounds = 0
    while True:
        value, completion = program.solve(cuts)
        rounds += 1
        cut = program.most_violated(completion)
        if cut is None or cut in cuts:
            return value, rounds
        cuts.append(cut)


# The optimum, by trying every schedule that could be one.


def optimum(problem: RelatedMachines) -> float:
    """The least weighted sum of completions: every order of tasks, every choice of machines.

    Some optimum is made by handing out its tasks in order of their starts, each as early as its
    machine, its release and its stages allow. So all orders that keep the stages are tried,
    with all machines; a branch ends where even nothing more to do would cost too much. For
    about six tasks.
    """
    tasks = [
        (number, place, task)
        for number, job in enumerate(problem.jobs)
        for place, stage in enumerate(job.stages)
        for task in range(len(stage.work))
    ]
    speed, weight = problem.speed.tolist(), problem.weight.tolist()
    low = [soonest(problem, job) for job in problem.jobs]
    best = float("inf")

    def go_on(
        left: frozenset[tuple[int, int, int]],
        free: tuple[float, ...],
        ends: dict[tuple[int, int], float],
        last: float,
    ) -> None:
        nonlocal best
        done = low.copy()
        for (number, _), end in ends.items():
            done[number] = max(done[number], end)
        value = sum(w * c for w, c in zip(weight, done, strict=True))
        if value >= best:
            return
        if not left:
            best = value
            return
        for number, place, task in sorted(left):
            stage = problem.jobs[number].stages[place]
            if any(n == number and s in stage.before for n, s, _ in left):
                continue
            ready = max(
                [problem.jobs[number].release, *(ends[number, s] for s in stage.before)]
            )
            for machine in range(len(speed)):
                begin = max(free[machine], ready)
                if begin < last:
                    continue  # Orders other than that of the starts give nothing new.
                end = begin + float(stage.work[task]) / speed[machine]
                key = number, place
                go_on(
                    left - {(number, place, task)},
                    (*free[:machine], end, *free[machine + 1 :]),
                    ends | {key: max(end, ends.get(key, 0.0))},
                    begin,
                )

    go_on(frozenset(tasks), (0.0,) * len(speed), {}, 0.0)
    return best
