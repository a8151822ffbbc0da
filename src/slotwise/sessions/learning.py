"""What a session knows of programs from earlier runs, and adds for later ones."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from slotwise.estimation.rates import Rates, estimate_rates
from slotwise.model.cluster import Cluster
from slotwise.model.errors import InputError
from slotwise.model.observation import Sizes
from slotwise.opening import is_same_file
from slotwise.programs.execution import Execution, HasInputSizes
from slotwise.record.history import read_history
from slotwise.record.remembering import Remembering


class Learning:
    """Estimates by a history, and the record that adds finished tasks of programs to it.

    rates   the estimates; none without a history
    record  the record for the loop; None without a history
    """

    def __init__(
        self, history: str | Path | None, cluster: Cluster, log: str | Path | None
    ) -> None:
        """InputError for a history that cannot be read, or that is the log."""
        self._programs: dict[str, tuple[str, Mapping[str, Sizes]]] = {}
        self.rates = Rates()
        self.record: Remembering | None = None
        if history is None:
            return
        if log is not None and is_same_file(log, history):
            raise InputError(f"history {str(history)!r} is the log, too; name another file")
        if os.path.exists(history):
            self.rates = estimate_rates(read_history(history))
        self.record = Remembering(history, self._programs, cluster)

    def begin(self, execution: Execution) -> None:
        """A job is about to arrive: its finished tasks are remembered."""
        if self.record is not None and isinstance(execution, HasInputSizes):
            self._programs[execution.job.id] = (execution.program, execution.sizes)

    def end(self, job: str) -> None:
        """A job is over."""
        self._programs.pop(job, None)
