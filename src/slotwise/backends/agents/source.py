"""Where hosts with agents come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slotwise.core.errors import MissingExtraError, check_whole, option_name

if TYPE_CHECKING:  # It needs msgpack, which the extra dask installs.
    from slotwise.backends.agents.backend import HostSource


def dask_workers(dask: Any, slots: int | None = None) -> HostSource:
    """The workers of a Dask cluster: of a client, or of the scheduler at an address.

    With `slots`, at most so many of each worker. InputError if there is none; MissingExtraError
    without Dask.
    """
    if slots is not None:
        check_whole(option_name("dask_slots"), slots)
    try:
        from slotwise.backends.agents.dask_workers import DaskWorkers
    except ImportError as error:
        raise MissingExtraError("a Dask cluster", "dask", error) from error
    return DaskWorkers(dask, slots)
