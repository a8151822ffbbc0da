"""Sources of hosts with agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slotwise.core.errors import MissingExtraError, check_whole, option_name

if TYPE_CHECKING:  # It needs msgpack, which the extra dask installs.
    from slotwise.backends.agents.backend import HostSource


def dask_workers(dask: Any, slots: int | None = None) -> HostSource:
    """The workers of a Dask cluster, given by a client or by the address of its scheduler.

    At most `slots` slots of each worker are used. InputError if there is no such cluster;
    MissingExtraError without Dask.
    """
    if slots is not None:
        check_whole(option_name("dask_slots"), slots)
    try:
        from slotwise.backends.agents.dask_workers import DaskWorkers
    except ImportError as error:
        raise MissingExtraError("a Dask cluster", "dask", error) from error
    return DaskWorkers(dask, slots)
