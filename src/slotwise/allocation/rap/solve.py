"""Solves the resource allocation problem by any of the solvers that FLEX names (FLEX 3.2)."""

from __future__ import annotations

from typing import Literal

from slotwise.allocation.rap.dynamic_programme import dynamic_programme
from slotwise.allocation.rap.fox import fox
from slotwise.allocation.rap.frederickson_johnson import frederickson_johnson
from slotwise.allocation.rap.gains import minimax_gains, minisum_gains
from slotwise.allocation.rap.galil_megiddo import galil_megiddo
from slotwise.allocation.rap.problem import ResourceProblem, is_convex
from slotwise.objective.costs import Ints
from slotwise.objective.objective import Aggregate

Solver = Literal["fox", "galil-megiddo", "frederickson-johnson", "dynamic-programme"]

SELECTIONS = {
    "fox": fox,
    "galil-megiddo": galil_megiddo,
    "frederickson-johnson": frederickson_johnson,
}


def solve(
    problem: ResourceProblem, aggregate: Aggregate = "sum", solver: Solver | None = None
) -> Ints:
    """The units of each job that minimise the sum or the maximum of the costs.

    solver  for J jobs and S units: "fox", O(J + S log J); "galil-megiddo", O(J (log S)^2); and
            "frederickson-johnson", O(max(J, J log(S/J))), for a maximum of any costs or a sum
            of convex ones; "dynamic-programme", for a sum of any costs, O(J S^2), or O(K S) for
            staircases with K steps in all. By default the third where it applies, otherwise the
            last; for a sum, that takes a convexity test of O(J S)

    Units that do not help are not given.
    """
    if solver is None:
        is_selection = aggregate == "max" or is_convex(problem)
        solver = "frederickson-johnson" if is_selection else "dynamic-programme"
    if solver == "dynamic-programme":
        assert aggregate == "sum", "the dynamic programme minimises a sum"
        return dynamic_programme(problem)
    gains = minimax_gains(problem) if aggregate == "max" else minisum_gains(problem)
    return problem.min_share + SELECTIONS[solver](gains)
