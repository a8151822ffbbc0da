"""Parse options that are short texts."""

from __future__ import annotations

from collections.abc import Iterable

from slotwise.model.errors import InputError
from slotwise.model.pool import Preemption
from slotwise.runtime.simulated.outages import Outage
from slotwise.sources import Slots


def parse_waits(text: str | None) -> tuple[float, float] | None:
    """Parse two numbers of seconds: 5,10. Raises InputError."""
    if text is None:
        return None
    try:
        rack, any_ = (float(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(
            f"--waits is {text!r}; give two numbers of seconds, as in 5,10"
        ) from error
    return rack, any_


def parse_slots(text: str | None) -> Slots | None:
    """Parse a number of slots, or numbers by kind: map=2,reduce=1. Raises InputError."""
    if text is None:
        return None
    try:
        if "=" not in text:
            slots: Slots = int(text)
            is_good = int(text) >= 1
        else:
            slots = {kind: int(count) for kind, count in _pairs(text)}
            is_good = min(slots.values()) >= 0 < max(slots.values())
    except ValueError:
        is_good = False
    if not is_good:
        raise InputError(
            f"--slots is {text!r}; give a number >= 1, or numbers by kind, as in map=2,reduce=1"
        )
    return slots


PREEMPT_KEYS = {
    "least": "least_after",
    "fair": "fair_after",
    "fraction": "fraction",
    "grace": "grace",
}
"""The keys of --preempt, and the fields of Preemption that they set."""


def parse_preemption(text: str | None) -> Preemption | None:
    """Parse when pools reclaim slots: least=5,fair=30,fraction=0.5,grace=2, or some of these.

    Raises InputError.
    """
    if text is None:
        return None
    example = "as in least=5,fair=30,fraction=0.5,grace=2"
    try:
        given = {key: float(value) for key, value in _pairs(text)}
    except ValueError as error:
        raise InputError(f"--preempt is {text!r}; give numbers, {example}") from error
    for key in given:
        if key not in PREEMPT_KEYS:
            known = ", ".join(PREEMPT_KEYS)
            raise InputError(f"--preempt has no key {key!r}; known: {known}, {example}")
    if not given.keys() & {"least", "fair"}:
        raise InputError(
            f"--preempt is {text!r}, by which pools never reclaim slots; add least or fair,"
            f" in seconds, {example}"
        )
    return Preemption(**{PREEMPT_KEYS[key]: value for key, value in given.items()})


def parse_outage(text: str) -> Outage:
    """Parse a host, the start of its outage and the duration, in seconds: h1=60+30.

    Raises InputError.
    """
    host, _, times = text.rpartition("=")
    at, _, seconds = times.partition("+")
    try:
        if not host:
            raise ValueError
        return Outage(host, float(at), float(seconds))
    except ValueError as error:
        raise InputError(
            f"--outage is {text!r}; give a host, an instant and seconds, as in h1=60+30"
        ) from error


def parse_speeds(texts: Iterable[str]) -> dict[str, float]:
    """Parse true speeds of hosts: h1=0.5. Raises InputError."""
    speeds: dict[str, float] = {}
    for text in texts:
        host, _, speed = text.rpartition("=")
        try:
            if not host or host in speeds:
                raise ValueError
            speeds[host] = float(speed)
        except ValueError as error:
            raise InputError(
                f"--true-speed is {text!r}; give each host once with its speed, as in h1=0.5"
            ) from error
    return speeds


def _pairs(text: str) -> list[tuple[str, str]]:
    """Split into keys and values; ValueError for an invalid pair or a duplicate key."""
    pairs = [(key.strip(), value) for key, value in (p.split("=") for p in text.split(","))]
    if len({key for key, _ in pairs}) < len(pairs) or not all(key for key, _ in pairs):
        raise ValueError
    return pairs
