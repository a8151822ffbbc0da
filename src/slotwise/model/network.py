"""The network of a cluster: the bandwidth between hosts and racks."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from slotwise.model.typed import check_positive


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
            if getattr(self, name) != inf:
                check_positive(f"network: {name}, bytes a second,", getattr(self, name))
