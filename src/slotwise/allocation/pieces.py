"""A packed schedule as arrays: which claim holds how many slots from when to when."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slotwise.objective.costs import Floats

Ints = NDArray[np.int64]

Packing = list[list[tuple[float, float, float]]]
"""For each claim its pieces (start, end, slots), in order of time and not overlapping."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """Claim `claim[i]` holds `slots[i]` > 0 slots from `start[i]` to `end[i]`, in seconds.

    In order of claim, then of time; a claim's pieces do not overlap, and neighbours differ in
    slots. At most 3 J pieces for J claims.
    """

    claim: Ints
    start: Floats
    end: Floats
    slots: Floats

    @classmethod
    def of_changes(
        cls, least: Floats, completion: Floats, changed: Ints, since: Floats, slots: Floats
    ) -> Pieces:
        """The pieces of jobs that begin with their least shares, from their later changes.

        changed, since, slots   whose share changed when and to what, in order of time
        """
        count = len(completion)
        claim = np.concatenate((np.arange(count), changed))
        start = np.concatenate((np.zeros(count), since))
        held = np.concatenate((least, slots))
        by_claim = np.argsort(claim, kind="stable")
        claim, start, held = claim[by_claim], start[by_claim], held[by_claim]

        lasts = _ends(claim, start, completion) > start
        claim, start, held = claim[lasts], start[lasts], held[lasts]
        goes_on = np.zeros(len(claim), dtype=bool)
        goes_on[1:] = (claim[1:] == claim[:-1]) & (held[1:] == held[:-1])
        claim, start, held = claim[~goes_on], start[~goes_on], held[~goes_on]

        end, is_real = _ends(claim, start, completion), held > 0
        return cls(claim[is_real], start[is_real], end[is_real], held[is_real])

    def by_claim(self, count: int) -> Packing:
        """The same as lists, one for each of `count` claims."""
        packing: Packing = [[] for _ in range(count)]
        columns = (self.claim, self.start, self.end, self.slots)
        for j, start, end, slots in zip(*(c.tolist() for c in columns), strict=True):
            packing[j].append((start, end, slots))
        return packing


def _ends(claim: Ints, start: Floats, completion: Floats) -> Floats:
    """When each share ends: with the claim's next one, or with the claim."""
    ends = completion[claim]
    is_followed = claim[1:] == claim[:-1]
    ends[:-1][is_followed] = start[1:][is_followed]
    return ends
