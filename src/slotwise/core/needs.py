"""The ready phases of one kind of slot, by what their tasks need beside slots."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import numpy as np

from slotwise.core.job import PhaseId
from slotwise.core.phase_state import PhaseState
from slotwise.core.resources import NOTHING, Resources


class PhasesByNeeds(Mapping[Resources, Collection[PhaseState]]):
    """Phases by their needs, which are also rows of a table, since there may be many of them.

    `add` and `remove` cost O(names); `within` costs O(different needs), in numpy.
    """

    def __init__(self) -> None:
        self._phases: dict[Resources, dict[PhaseId, PhaseState]] = {}
        self._rows: dict[Resources, int] = {}
        self._needs: list[Resources | None] = []  # by row; None: the row is free
        self._free: list[int] = []
        self._columns: dict[str, int] = {}
        self._table = np.zeros((0, 0), np.int64)

    def __getitem__(self, needs: Resources) -> Collection[PhaseState]:
        return self._phases[needs].values()

    def __iter__(self) -> Iterator[Resources]:
        return iter(self._phases)

    def __len__(self) -> int:
        return len(self._phases)

    def add(self, phase: PhaseState) -> None:
        """Add a phase."""
        alike = self._phases.get(phase.needs)
        if alike is None:
            alike = self._phases[phase.needs] = {}
            if phase.needs:
                self._add_row(phase.needs)
        alike[phase.id] = phase

    def remove(self, phase: PhaseState) -> None:
        """Remove a phase."""
        alike = self._phases[phase.needs]
        del alike[phase.id]
        if not alike:
            del self._phases[phase.needs]
            if phase.needs:
                row = self._rows.pop(phase.needs)
                self._needs[row] = None
                self._free.append(row)

    def within(self, most: Mapping[str, int]) -> list[Resources]:
        """The needs of which no amount is above these."""
        amounts = [most.get(name, 0) for name in self._columns]
        fits = (self._table[: len(self._needs), : len(amounts)] <= amounts).all(axis=1)
        found = map(self._needs.__getitem__, np.flatnonzero(fits).tolist())
        nothing = [NOTHING] if NOTHING in self._phases else []
        return nothing + [needs for needs in found if needs is not None]

    def check(self, phases: Iterable[PhaseState]) -> None:
        """Assert that these phases are in it, and no others. For tests."""
        found: dict[Resources, set[PhaseId]] = {}
        for phase in phases:
            found.setdefault(phase.needs, set()).add(phase.id)
        assert found == {needs: set(alike) for needs, alike in self._phases.items()}
        for most in found:
            within = {needs for needs in found if most.holds(needs)}
            assert set(self.within(most)) == within, "the table has the same needs"

    def _add_row(self, needs: Resources) -> None:
        for name in needs:
            self._columns.setdefault(name, len(self._columns))
        if not self._free:
            self._free.append(len(self._needs))
            self._needs.append(None)
        rows, columns = self._table.shape
        if len(self._needs) > rows or len(self._columns) > columns:
            table = np.zeros((2 * len(self._needs), 2 * len(self._columns)), np.int64)
            table[:rows, :columns] = self._table
            self._table = table
        row = self._free.pop()
        self._rows[needs], self._needs[row], self._table[row] = row, needs, 0
        for name, amount in needs.pairs:
            self._table[row, self._columns[name]] = amount
