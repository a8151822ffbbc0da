"""The separable resource allocation problem (FLEX 3.2): assigns units to jobs with costs."""

from slotwise.allocation.rap.problem import ResourceProblem, is_convex
from slotwise.allocation.rap.solve import Solver, solve

__all__ = ["ResourceProblem", "Solver", "is_convex", "solve"]
