"""Ten slots for three jobs: a sum, a maximum and step costs minimized, and a priority order."""

import numpy as np

from slotwise.core.objective import Hinge
from slotwise.policy.malleable import Malleable
from slotwise.policy.rap import ResourceProblem, is_convex, solve
from slotwise.policy.search.orders import generic_order

work, due = [12.0, 60.0, 21.0], [6.0, 10.0, 8.0]  # seconds at speed 1, seconds


def response(jobs, slots):
    return np.array(work)[jobs] / slots


problem = ResourceProblem.of(10, min_share=[1, 1, 1], max_share=[10, 10, 10], cost=response)
print("sum of responses, convex:", is_convex(problem))
for solver in ("fox", "galil-megiddo", "frederickson-johnson", "dynamic-programme"):
    slots = solve(problem, "sum", solver)
    print(f"  {solver:20} {slots} {problem.value(slots):.4f}")

print("greatest response:")
for solver in ("fox", "galil-megiddo", "frederickson-johnson"):
    slots = solve(problem, "max", solver)
    print(f"  {solver:20} {slots} {problem.value(slots, 'max'):.4f}")


def tardy(jobs, slots):
    return np.where(np.array(work)[jobs] > np.array(due)[jobs] * slots, 1.0, 0.0)


staircases = ResourceProblem.of(10, min_share=[1, 1, 1], max_share=[10, 10, 10], cost=tardy)
print("tardy jobs, convex:", is_convex(staircases))
slots = solve(staircases)
print(f"  {'by default':20} {slots} {staircases.value(slots):.0f}")

costs = [Hinge(1.0, instant) for instant in due]
order = generic_order(Malleable.of(10, work, [1, 1, 1], [10, 10, 10], costs))
print("order for the sum of tardiness:", order)
