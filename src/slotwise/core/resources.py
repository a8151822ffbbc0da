"""Amounts of resources: what a host has, and what a task of a phase requests.

The names of resources are the kinds of slots. Whether a request fits, and how often, is decided
here alone, so that another resource, such as memory, is one more name.
docs/decisions/0041-resources.md lists the files that it would touch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping


class Resources(Mapping[str, int]):
    """Amounts by name of the resource. Immutable; an amount of 0 is left out.

    pairs  the names and amounts, for code that runs at each launch
    """

    __slots__ = ("_amounts", "pairs")

    def __init__(self, amounts: Mapping[str, int]) -> None:
        self._amounts = {name: amount for name, amount in amounts.items() if amount}
        self.pairs = tuple(self._amounts.items())

    def __getitem__(self, name: str) -> int:
        return self._amounts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._amounts)

    def __len__(self) -> int:
        return len(self._amounts)

    def __repr__(self) -> str:
        return f"Resources({self._amounts})"

    def holds(self, request: Resources) -> bool:
        """Whether a request fits into these amounts. O(names in the request)."""
        amounts = self._amounts
        return all(amounts.get(name, 0) >= amount for name, amount in request.pairs)

    def times(self, request: Resources) -> int:
        """How many of these requests, not empty, fit at once. O(names in the request)."""
        amounts = self._amounts
        return min(amounts.get(name, 0) // amount for name, amount in request.pairs)
