"""The state in which the run of a log begins."""

from __future__ import annotations

from slotwise.record.log import RULES_RESERVING, Header
from slotwise.runtime.state import State


def initial_state(header: Header) -> State:
    """The state before the first event of a run with this header."""
    return State(
        header.cluster,
        header.pools,
        attempts_max=header.attempts_max,
        losses_max=header.losses_max,
        reserves=header.rules >= RULES_RESERVING,
    )
