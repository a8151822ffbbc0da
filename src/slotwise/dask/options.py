"""How the gate is configured: the scheduler, the pools, and who is in which pool."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from typing import Any

from slotwise.dask.computations import Submitter
from slotwise.model.errors import InputError
from slotwise.model.pool import Pool


@dataclass(frozen=True, slots=True)
class Rule:
    """Puts computations into a pool: those of which all that it states matches.

    client      a pattern of the client's name, such as "alice-*"
    annotation  items that the annotation `slotwise={...}` must have
    address     a pattern of the client's address, such as "tcp://10.1.*"
    """

    pool: str
    client: str | None = None
    annotation: Mapping[str, Any] = field(default_factory=dict)
    address: str | None = None

    def matches(self, client: str, annotation: Mapping[str, Any], address: str) -> bool:
        """Whether a computation is of this pool."""
        return (
            (self.client is None or fnmatchcase(client, self.client))
            and (self.address is None or fnmatchcase(address, self.address))
            and all(annotation.get(name) == value for name, value in self.annotation.items())
        )


@dataclass(frozen=True, slots=True)
class GateOptions:
    """The options of the gate.

    scheduler  the allocator: "fifo", "fair", "flex", "las", "uwfq", "flowflex"
    pools      the pools with their shares
    rules      the first one that matches says in which pool a computation is; otherwise its
               annotation says it, else the name of its client if a pool has it, else "default"
    objective  what to minimize: the name of a penalty, or an Objective
    ahead      tasks that each worker may have beyond its threads; None: by their length
    log        file to write the log to
    """

    scheduler: str = "flex"
    pools: Sequence[Pool] = ()
    rules: Sequence[Rule] = ()
    objective: Any = None
    ahead: int | None = None
    log: str | None = None

    @classmethod
    def of_mapping(cls, plain: Mapping[str, Any]) -> GateOptions:
        """Options as read from YAML. InputError for unknown names or wrong values."""
        known = [one.name for one in fields(cls)]
        for name in plain:
            if name not in known:
                raise InputError(
                    f"slotwise: unknown option {name!r}; known: {', '.join(known)}"
                )
        values = dict(plain)
        values["pools"] = [
            one if isinstance(one, Pool) else Pool(**one) for one in plain.get("pools") or ()
        ]
        values["rules"] = [
            one if isinstance(one, Rule) else Rule(**one) for one in plain.get("rules") or ()
        ]
        return cls(**values)

    def submitter(
        self, client: str, annotation: Mapping[str, Any], address: str = ""
    ) -> Submitter:
        """The properties of the job of a computation."""
        name = client_name(client)
        values = {
            key: annotation[key]
            for key in ("weight", "deadline", "priority")
            if annotation.get(key) is not None
        }
        rule = next((r for r in self.rules if r.matches(client, annotation, address)), None)
        named = {pool.name for pool in self.pools}
        if rule is not None:
            pool = rule.pool
        elif "pool" in annotation:
            pool = str(annotation["pool"])
        else:
            pool = name if name in named else "default"
        return Submitter(name, pool, **values)


def client_name(client: str) -> str:
    """The name that a user gave to a client, or "client"; its id is Client-NAME-UUID."""
    found = _CLIENT.fullmatch(client)
    return (found and found["name"]) or "client"


_CLIENT = re.compile(r"[^-]+-(?:(?P<name>.*)-)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
