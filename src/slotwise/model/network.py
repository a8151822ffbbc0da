"""The network of a cluster: what can pass at once between hosts and racks."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from slotwise.model.errors import InputError


@dataclass(frozen=True, slots=True)
class Network:
    """Bytes a second that can pass: into and out of a host, into and out of a rack, the core.

    Hosts of a rack meet in its switch; racks meet in the core. What flows at once shares each
    of these fairly.
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
