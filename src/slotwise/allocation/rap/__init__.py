"""The separable resource allocation problem (FLEX 3.2): assigns units to jobs with costs."""

from slotwise.allocation.rap.dynamic_programme import dynamic_programme
from slotwise.allocation.rap.envelope import envelope_gains
from slotwise.allocation.rap.fox import fox
from slotwise.allocation.rap.frederickson_johnson import frederickson_johnson
from slotwise.allocation.rap.gains import Gains, minimax_gains, minisum_gains
from slotwise.allocation.rap.galil_megiddo import galil_megiddo
from slotwise.allocation.rap.problem import ResourceProblem, is_convex
from slotwise.allocation.rap.solve import lowest_level, solve

__all__ = [
    "Gains",
    "ResourceProblem",
    "dynamic_programme",
    "envelope_gains",
    "fox",
    "frederickson_johnson",
    "galil_megiddo",
    "is_convex",
    "lowest_level",
    "minimax_gains",
    "minisum_gains",
    "solve",
]
