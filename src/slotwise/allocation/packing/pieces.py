"""A packed schedule as arrays: the claim, interval and slots of each piece."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slotwise.objective.costs import Floats, Ints

Packing = list[list[tuple[float, float, float]]]
"""For each claim its pieces (start, end, slots), in order of time and not overlapping."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """Claim `claim[i]` holds `slots[i]` > 0 slots from `start[i]` to `end[i]`, in seconds.

    Pieces are in order of claim, then of time. The pieces of a claim do not overlap, and
    adjacent ones differ in slots. At most 3 J pieces for J claims.
    """

    claim: Ints
    start: Floats
    end: Floats
    slots: Floats

    @classmethod
    def of_changes(
        cls, min_share: Floats, completion: Floats, changed: Ints, since: Floats, slots: Floats
    ) -> Pieces:
        """The pieces of jobs that start with their min shares, from the later changes.

        changed, since, slots   the job, instant and new share of each change, in order of time
        """
        count, rows = len(completion), len(completion) + len(changed)
        # Sorting claim and row as one number is several times faster than a stable argsort.
        numbers = np.concatenate((np.arange(count), changed)) * rows + np.arange(rows)
        claim, row = np.divmod(np.sort(numbers), rows)
        start = np.concatenate((np.zeros(count), since))[row]
        held = np.concatenate((min_share, slots))[row]
        end = completion[claim]
        is_followed = claim[1:] == claim[:-1]
        end[:-1][is_followed] = start[1:][is_followed]
        is_real = (end > start) & (held > 0)
        return cls(claim[is_real], start[is_real], end[is_real], held[is_real])._joined()

    def _joined(self) -> Pieces:
        """Join consecutive pieces of a claim that have the same slots."""
        goes_on = (self.claim[1:] == self.claim[:-1]) & (self.slots[1:] == self.slots[:-1])
        if not goes_on.any():
            return self
        first, last = np.append(True, ~goes_on), np.append(~goes_on, True)
        return Pieces(self.claim[first], self.start[first], self.end[last], self.slots[first])

    def by_claim(self, count: int) -> Packing:
        """The pieces as lists, one for each of `count` claims."""
        packing: Packing = [[] for _ in range(count)]
        columns = (self.claim, self.start, self.end, self.slots)
        for j, start, end, slots in zip(*(c.tolist() for c in columns), strict=True):
            packing[j].append((start, end, slots))
        return packing
