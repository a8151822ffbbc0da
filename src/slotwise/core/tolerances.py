"""Tolerances: the differences that count as rounding errors, each with its reason.

A floating-point number has a relative error of up to 1.1e-16, and the error of a computation
grows with its length. A tolerance is larger than the errors that it covers and much smaller
than any difference that matters. Whether a deadline is met is a question of the objective:
`slotwise.core.objective.MET`.
"""

from __future__ import annotations

CLOCK = 1.2e-16
"""Relative to an instant; the rounding of one instant is slightly smaller."""

RUNNING_SUM = 1e-15
"""Relative to the largest term; the rounding error of each term of a running sum."""

SUM = 1e-13
"""Relative to the terms; the rounding error of a sum of many terms."""

LEVEL = 1e-13
"""Relative; a bisection for the level of a maximum stops here, with three digits to spare."""

KEPT = 1e-13
"""Relative; by how much the due dates of a plan may exceed the room. It is small, because slots
for these due dates must then be found."""

PROMISED = 4e-13
"""Relative to the slots' work until an instant; by how much work may exceed the room of due
dates that are promised one by one, each of which adds its rounding error to the room."""

ROUNDING = 1e-12
"""Relative; parts of a slot, of an interval and of work up to this size are rounding errors."""

EXCESS = 1e-10
"""Relative; by how much a share that a plan computes in many steps may exceed whole slots. The
excess has no slot: it is left out."""

SAME = 1e-12
"""Relative; values of schedules that differ by less are equal."""

SAFE = 1e-12
"""Relative; lower bounds err by this part in the safe direction. It exceeds the rounding errors
of all their sums, so that what a bound excludes is certainly impossible."""

EARLY = 1e-11
"""Part of an instant by which lower bounds evaluate costs earlier: the instants of a schedule,
which are sums of many others, are rounded."""

CLOSE = 1e-9
"""Relative; results of long computations, such as bounds and sums of completions, that differ
by less are equal."""

WHOLE = 1e-6
"""If sums are whole numbers of some unit, a bound that exceeds one of them by less is that sum.
"""

SLOTS = 1e-9
"""Of a slot, or relative to several slots; an allocator may divide slots in many steps."""
