"""What a session knows of programs from earlier runs, and adds for later ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from slotwise.estimation.rates import Rates, estimate_rates
from slotwise.model.cluster import Cluster
from slotwise.model.observation import Sizes
from slotwise.programs.execution import Execution, HasInputSizes
from slotwise.record.history import read_history
from slotwise.record.remembering import HistoryWriter
from slotwise.running import existing


class Learning:
    """Estimates by a history, and the record that adds finished tasks of programs to it.

    rates   the estimates; none without a history
    record  the record for the loop; None without a history
    """

    def __init__(self, history: str | Path | None, cluster: Cluster) -> None:
        """InputError for a history that cannot be read."""
        self._programs: dict[str, tuple[str, Mapping[str, Sizes]]] = {}
        self.rates = Rates()
        self.record: HistoryWriter | None = None
        if earlier := existing(history):
            self.rates = estimate_rates(read_history(earlier))
        if history is not None:
            self.record = HistoryWriter(history, self._programs, cluster)

    def begin(self, execution: Execution) -> None:
        """A job is about to arrive: its finished tasks are remembered."""
        if self.record is not None and isinstance(execution, HasInputSizes):
            self._programs[execution.job.id] = (execution.program, execution.sizes)

    def end(self, job: str) -> None:
        """A job is over."""
        self._programs.pop(job, None)
