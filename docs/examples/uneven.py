"""DMRS step by step: two jobs of maps and reduces on one fast and two slow machines."""

import numpy as np

from slotwise.policy.dmrs.algorithm import dmrs, guarantee, linear_program, skewness
from slotwise.policy.dmrs.planning import PLANNERS
from slotwise.policy.dmrs.problem import NumericJob, RelatedMachines, Stage
from slotwise.policy.search.budget import Budget


def job(maps, reduces, release=0.0, weight=1.0):
    return NumericJob((Stage(np.array(maps)), Stage(np.array(reduces), (0,))), release, weight)


problem = RelatedMachines(
    speed=np.array([2.0, 1.0, 1.0]),
    jobs=[job([8.0, 8.0, 8.0], [6.0, 6.0]), job([4.0, 2.0], [4.0], release=3.0, weight=3.0)],
)

program = linear_program(problem)
print(f"bound {program.value:.3f}, by completions", program.completion.round(3).tolist())
print(f"D = {skewness(problem):.3f}: DMRS costs at most {guarantee(problem):.3f} times as much")

print("\njob stage task machine   from     to")
for run in dmrs(problem).runs:
    where = f"{run.job:3} {run.stage:5} {run.task:4} {run.machine:7}"
    print(f"{where} {run.start:6.2f} {run.end:6.2f}")

print()
for name, plan in PLANNERS.items():
    value = problem.value(plan(problem, Budget(200)).completion)
    print(f"{name:>17} {value:7.3f}  ratio {value / program.value:.3f}")
