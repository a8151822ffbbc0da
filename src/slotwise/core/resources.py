"""Amounts of resources: what a host has, and what a task of a phase requests.

The names of resources are the kinds of slots, `memory`, `gpu`, and names that users choose.
Slots are whole, memory is in bytes, and all others are in thousandths, so that all amounts are
whole numbers and sums are exact. Whether a request fits, and how often, is decided here alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, overload

from slotwise.core.errors import InputError, check_name, is_number, is_whole, shown
from slotwise.core.units import Percent, converted, size, size_text

MEMORY = "memory"
"""The resource whose amounts are bytes."""

GPU = "gpu"
"""The resource of devices: a task gets whole ones, or a part of one."""

UNIT = 1000
"""The amount of one of any other resource but slots: amounts are in thousandths."""

MEANT = {"mem": MEMORY, "ram": MEMORY, "gpus": GPU}
"""Words for resources that no user can name so, with those that are meant."""

MAX_AMOUNT = 10**15
"""The largest amount of a resource; a larger one is taken for a typing error."""


def in_units(name: str, amount: int) -> float:
    """An amount as users state it: bytes of memory, and the number of any other resource."""
    return amount if name == MEMORY else amount / UNIT


class Resources(Mapping[str, int]):
    """Amounts by name of the resource. Immutable; an amount of 0 is left out.

    pairs  the names and amounts, for code that runs at each launch
    """

    __slots__ = ("_amounts", "_hash", "pairs")

    def __init__(self, amounts: Mapping[str, int]) -> None:
        self._amounts = {name: amount for name, amount in amounts.items() if amount}
        self.pairs = tuple(self._amounts.items())
        self._hash = hash(frozenset(self.pairs))

    def __getitem__(self, name: str) -> int:
        return self._amounts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._amounts)

    def __len__(self) -> int:
        return len(self._amounts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Resources):
            return self._amounts == other._amounts
        return isinstance(other, Mapping) and self._amounts == dict(other)

    @overload  # type: ignore[override]
    def get(self, name: str) -> int | None: ...

    @overload
    def get(self, name: str, default: int) -> int: ...

    def get(self, name: str, default: int | None = None) -> int | None:
        """As of each mapping, but several times as fast."""
        return self._amounts.get(name, default)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._amounts})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._amounts,)  # The hash of strings differs between processes.

    def holds(self, request: Resources) -> bool:
        """Whether a request fits into these amounts. O(names in the request)."""
        amounts = self._amounts  # A loop: this is asked several times at each decision.
        for name, amount in request.pairs:  # noqa: SIM110
            if amounts.get(name, 0) < amount:
                return False
        return True

    def times(self, request: Resources) -> int:
        """How many of these requests, not empty, fit at once. O(names in the request)."""
        amounts = self._amounts
        return min(_times(name, amounts.get(name, 0), amount) for name, amount in request.pairs)

    def scaled(self, count: int) -> Resources:
        """What as many of these take together."""
        return Resources({name: count * amount for name, amount in self.pairs})

    def stated(self) -> dict[str, int | float]:
        """The amounts as users state them and as logs have them: bytes, and numbers."""
        return {name: _number(name, amount) for name, amount in sorted(self.pairs)}

    def __str__(self) -> str:
        return ", ".join(f"{name} {text}" for name, text in self.texts().items())

    def texts(self) -> dict[str, str]:
        """The amounts as text: sizes, and numbers."""
        return {name: amount_text(name, amount) for name, amount in sorted(self.pairs)}


NOTHING = Resources({})
"""No resources."""


class ResourcesMax(Resources):
    """The most of each resource that is named, by name. An amount of 0 stays: nothing of it.

    One may be a `Percent` of what the cluster has, until the amounts are `on` a cluster.
    """

    __slots__ = ()

    def __init__(self, amounts: Mapping[str, Any]) -> None:
        self._amounts = dict(sorted(amounts.items()))  # Decisions depend on their order.
        self.pairs = tuple(self._amounts.items())
        self._hash = hash(frozenset(self.pairs))

    def on(self, totals: Mapping[str, int]) -> ResourcesMax:
        """The amounts where a cluster has these totals; parts are rounded down."""
        return ResourcesMax(
            {
                name: most.of_total(totals.get(name, 0)) if isinstance(most, Percent) else most
                for name, most in self.items()
            }
        )


UNLIMITED = ResourcesMax({})
"""No resource is limited."""


def table(several: Sequence[Resources]) -> dict[str, list[int]]:
    """The amounts of each resource that one of these has, in their order."""
    amounts = [one._amounts for one in several]
    names = sorted(set().union(*amounts))
    return {name: [one.get(name, 0) for one in amounts] for name in names}


@lru_cache(10_000)
def with_slots(slot_kind: str, slots: int, needs: Resources) -> Resources:
    """All that a task takes of its host. Tasks that take the same share one value."""
    return Resources({slot_kind: slots, **needs})


def resources_of(what: str, stated: Any) -> Resources:
    """The amounts that a user states, beside slots: `{"memory": "4 GiB", "gpu": 0.5}`.

    Memory is a whole number of bytes or a size; others are numbers of at most three decimals.
    InputError, which begins with `what`, for anything else.
    """
    return stated if isinstance(stated, Resources) else Resources(_amounts(what, stated))


def resources_max_of(what: str, stated: Any) -> ResourcesMax:
    """The most of each resource that a user states. InputError as for `resources_of`."""
    if isinstance(stated, ResourcesMax):
        return stated
    if isinstance(stated, Mapping) and "slots" in stated:
        raise InputError(f"{what}: slots are stated beside it, with the key `slots_max`")
    return ResourcesMax(_amounts(what, stated, may_be_parts=True))


def _amounts(what: str, stated: Any, may_be_parts: bool = False) -> dict[str, Any]:
    if not isinstance(stated, Mapping):
        raise InputError(
            f"{what} is {shown(stated)}; give amounts by name, such as"
            " {'memory': '4 GiB', 'gpu': 1}"
        )
    found = {}
    for name, value in stated.items():
        _check_resource(what, name)
        is_part = isinstance(value, str) and value.endswith("%") and may_be_parts
        read = _part if is_part else _amount
        found[name] = read(f"{what}: {name}", name, value)
    return found


def requested(what: str, stated: Any) -> Resources:
    """The amounts that each task requests; None: nothing. InputError as for `resources_of`."""
    needs = NOTHING if stated is None else resources_of(what, stated)
    check_devices(what, needs)
    return needs


def amount_text(name: str, amount: int) -> str:
    """An amount of a resource beside slots as text: a size, or a number."""
    return size_text(amount) if name == MEMORY else f"{_number(name, amount):g}"


def check_devices(what: str, resources: Resources, is_host: bool = False) -> None:
    """InputError for a part of a device on a host, and for a request of one and a half."""
    gpus = resources.get(GPU, 0)
    if gpus % UNIT and (is_host or gpus > UNIT):
        some = "a whole number" if is_host else "a whole number, or a part of one below 1"
        raise InputError(f"{what}: gpu is {gpus / UNIT:g}; give {some}")


def _part(what: str, name: str, value: str) -> Percent:
    try:
        return Percent.of(value)
    except ValueError:
        why = "give an amount, or a part of the cluster such as 50%, at most 100%"
        raise InputError(f"{what} is {shown(value)}; {why}") from None


def _amount(what: str, name: str, value: Any) -> int:
    if name == MEMORY:
        value = converted(what, value, size)
        if not is_whole(value) or value < 0:
            raise InputError(
                f"{what} is {shown(value)}; give bytes as a whole number >= 0, or a size such"
                " as '4 GiB'"
            )
        if value > MAX_AMOUNT:
            raise InputError(f"{what} is {shown(value)}; give at most {MAX_AMOUNT:,} bytes")
        return int(value)
    if isinstance(value, str):
        why = "give a number, without quotes or a unit; only memory has units"
        raise InputError(f"{what} is {shown(value)}; {why}")
    if not is_number(value) or not 0 <= value <= MAX_AMOUNT // UNIT:
        most = MAX_AMOUNT // UNIT
        raise InputError(f"{what} is {shown(value)}; give a number from 0 to {most:,}")
    amount: int = round(value * UNIT)
    if abs(amount - value * UNIT) > 1e-6 * amount:
        raise InputError(f"{what} is {shown(value)}; give at most three decimals")
    return amount


def _check_resource(what: str, name: Any) -> None:
    """InputError for a name that no resource has, or that is likely to mean another one."""
    check_name(f"{what}: the name of a resource", name)
    if name != name.strip():
        raise InputError(
            f"{what}: the name of a resource is {name!r}; remove the spaces around it"
            if name.strip()
            else f"{what}: the name of a resource is {name!r}; give letters or digits"
        )
    small = name.lower()
    known = MEANT.get(small, small)
    if known == "slots":
        raise InputError(f"{what}: slots are stated beside it, with the key `slots`")
    if name != known and known in (MEMORY, GPU):
        raise InputError(f"{what}: there is no resource {name!r}; did you mean {known!r}?")


def _times(name: str, has: int, amount: int) -> int:
    if name == GPU and amount < UNIT:  # Each part is of one device.
        return (has // UNIT) * (UNIT // amount)
    return has // amount


def _number(name: str, amount: int) -> Any:
    if isinstance(amount, Percent):
        return str(amount)
    if name == MEMORY:
        return amount
    return amount // UNIT if amount % UNIT == 0 else amount / UNIT
