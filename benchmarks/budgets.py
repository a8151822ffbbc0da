"""How long plans of flows take by default, and how much a larger budget would save.

Random flows of FlowFlex 5.1 on 25 slots are planned with the default number of steps and with
multiples of it. A line is an objective:

- processor time of the default plan, with its bound: mean and most, in seconds;
- plans that no larger budget can improve, as they say themselves (`may_improve`);
- for each multiple, the part of the default value that the longer search saves, mean and most,
  in percent; 100 if it finds 0.

Choose seeds that no test uses. `--plain` plans as without the extra `fast`; then the default
number of steps is lower. Every number except the times is the same on every machine.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from functools import partial
from math import ceil

import numpy as np

from experiments.flowflex.generator import FlowGenerator
from slotwise.core.job import Job
from slotwise.core.objective import Objective
from slotwise.plans import plan
from slotwise.policy.planning import flow_budget

SLOTS = 25
PENALTIES = ("response", "stretch", "tardiness", "tardy", "sla")
OBJECTIVES = [Objective(penalty, by) for by in ("sum", "max") for penalty in PENALTIES]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--flows", type=int, default=20)
    parser.add_argument("--phases", type=int, default=20, help="of each flow")
    parser.add_argument("--seed", type=int, default=1000, help="of the first workload")
    parser.add_argument("--count", type=int, default=5, help="workloads of each objective")
    parser.add_argument("--slack", type=float, default=1.0, help="of deadlines, at most")
    parser.add_argument("--times", type=int, nargs="+", default=[10], metavar="N")
    parser.add_argument("--objective", help="only objectives with this in their names")
    parser.add_argument("--allocator", default="flowflex")
    parser.add_argument("--plain", action="store_true", help="without compiled code")
    options = parser.parse_args()
    if options.plain:
        sys.modules["numba"] = None  # type: ignore[assignment]
    drawn = [draw(options, options.seed + number) for number in range(options.count)]
    plan(drawn[0], "flowflex", slots=SLOTS, objective="tardiness")  # Loads all code.
    print(f"{'objective':17} {'CPU s':>12} {'final':>7}", end="")
    print("".join(f"{f'{times} times save':>18}" for times in options.times))
    for objective in OBJECTIVES:
        name = f"{objective.aggregate} of {objective.penalty}"
        if not options.objective or options.objective in name:
            cells = line(drawn, options.allocator, objective, options.times)
            print(f"{name:17} {cells}", flush=True)


def draw(options: argparse.Namespace, seed: int) -> tuple[Job, ...]:
    """The flows of a seed, all of the same number of phases."""
    sizes = {"flows_least": options.flows, "flows_most": options.flows}
    phases = {"phases_least": options.phases, "phases_most": options.phases}
    generator = FlowGenerator(**sizes, **phases, slots=SLOTS, deadline_most=options.slack)
    return generator.draw(np.random.default_rng(seed))


def line(
    drawn: Sequence[tuple[Job, ...]],
    allocator: str,
    objective: Objective,
    multiples: Sequence[int],
) -> str:
    """Plan all workloads for one objective."""
    aim = partial(plan, allocator=allocator, objective=objective, slots=SLOTS)
    taken, final = [], 0
    saved: dict[int, list[float]] = {times: [] for times in multiples}
    for jobs in drawn:
        begun = time.process_time()
        made = aim(jobs)
        taken.append(time.process_time() - begun)
        final += not made.may_improve
        steps = flow_budget(sum(len(job.phases) for job in jobs)).steps
        for times, parts in saved.items():
            value = made.value
            if made.may_improve:
                value = aim(jobs, budget_steps=ceil(times * steps)).value
            parts.append(100 * (1 - value / made.value) if value != made.value else 0.0)
    counted = f"{final} of {len(drawn)}"
    cells = [f"{statistics.fmean(part):8.2f} {max(part):7.2f} %" for part in saved.values()]
    times_taken = f"{statistics.fmean(taken):.2f} {max(taken):.2f}"
    return f"{times_taken:>12} {counted:>7}" + "".join(f"{cell:>18}" for cell in cells)


if __name__ == "__main__":
    main()
