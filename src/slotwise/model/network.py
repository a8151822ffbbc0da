"""The network of a cluster: the bandwidth between hosts and racks."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from slotwise.model.errors import InputError


@dataclass(frozen=True, slots=True)
class Network:
    """Bandwidths in bytes a second: of a host and of a rack, each way, and of the core.

    The hosts of a rack are connected by its switch, and the racks by the core. Concurrent flows
    share each of these fairly.
    """

    host: float = inf
    rack: float = inf
    core: float = inf

    def __post_init__(self) -> None:
        for name in ("host", "rack", "core"):
            if not getattr(self, name) > 0:
                raise InputError(
                    f"network: {name} is {getattr(self, name)}; give bytes a second > 0"
                )
