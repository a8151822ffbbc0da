"""An interior point method for choices that share a few resources."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slotwise.objective.costs import Floats

CENTRED = 0.99
"""A step goes so far of the way to where the first variable would become 0."""

START = 0.1
"""How far from 0 slacks are at first, on scales on which all else is about 1."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """Prices of K resources, >= 0, and the parts of N options that J choices mix at them."""

    prices: Floats
    parts: Floats


def best_prices(
    costs: Floats, needs: Floats, room: Floats, scale: float, steps: int, gap: float
) -> Mixture:
    """Prices of K resources, >= 0, at which J choices that pay for what they need cost most.

    Each of J picks one of its N options, or a mixture of them; option n of j costs costs[j, n]
    and needs needs[j, n, k] of resource k, of which there is room[k]. The prices are nearly
    optimal for the dual of this linear program: sum_j min_n (costs + needs @ prices) - room @
    prices is about the greatest. They are the best that at most so many steps meet, fewer where
    that is closer to the optimum than `gap`, relatively. If what is needed at least is not
    there, prices are as high as the steps allow. Of the parts nothing is promised but that
    they are nearly optimal, too. `scale`, > 0, is about what an option can cost more.

    Mehrotra's method. The choices are eliminated from each system of equations, so a step
    costs O(J N K^2) and a system of K equations.
    """
    program = _Program((costs - costs.min(axis=1, keepdims=True)) / scale, needs, room)
    point = program.start()
    best, value = point, program.value(point)
    with np.errstate(all="ignore"):  # Where numbers become too large, the search ends.
        for _ in range(steps):
            if not program.apart(point) > gap * max(value, gap):
                break
            moved = program.step(point)
            if moved is None:
                break
            point = moved
            if (reached := program.value(point)) > value:
                best, value = point, reached
    return Mixture(best.prices * scale, best.parts)


@dataclass(frozen=True, slots=True)
class _Point:
    """Parts of each option, what is left of each resource, and the slacks of their prices.

    parts   J x N, > 0: in the end they add up to 1 for each choice
    left    K, > 0: in the end what is not needed
    prices  K, > 0
    cost    J: of each choice at most the cheapest of its options
    over    J x N, > 0: by how much an option at these prices is dearer than that
    """

    parts: Floats
    left: Floats
    prices: Floats
    cost: Floats
    over: Floats


class _Program:
    def __init__(self, costs: Floats, needs: Floats, room: Floats) -> None:
        self._costs, self._needs, self._room = costs, needs, room

    def start(self) -> _Point:
        """Every option equally, every price alike."""
        parts = np.full(self._costs.shape, 1 / self._costs.shape[1])
        left = np.maximum(self._room - self._needed(parts), START * self._room.mean())
        prices = np.full(len(self._room), 1 / len(self._room))
        paid = self._paid(prices)
        cost = paid.min(axis=1) - START
        return _Point(parts, left, prices, cost, paid - cost[:, None])

    def value(self, point: _Point) -> float:
        """What the prices prove."""
        return float(self._paid(point.prices).min(axis=1).sum() - self._room @ point.prices)

    def apart(self, point: _Point) -> float:
        """How far the point is from an optimum; its mean is what a step makes smaller."""
        return float((point.parts * point.over).sum() + point.left @ point.prices)

    def step(self, point: _Point) -> _Point | None:
        """One step, corrected for its own curvature; None where rounding allows no more."""
        newton = _Newton(self._needs, point, self._room - self._needed(point.parts))
        if not newton.is_sound:
            return None
        apart = self.apart(point)
        ahead = newton.towards(-point.parts * point.over, -point.left * point.prices)
        mixed, paid = ahead.reach(point)
        aimed = point.parts + mixed * ahead.parts
        after = float((aimed * (point.over + paid * ahead.over)).sum())
        after += float((point.left + mixed * ahead.left) @ (point.prices + paid * ahead.prices))
        target = (after / apart) ** 3 * apart / (point.parts.size + len(point.left))
        turn = newton.towards(
            target - point.parts * point.over - ahead.parts * ahead.over,
            target - point.left * point.prices - ahead.left * ahead.prices,
        )
        mixed, paid = turn.reach(point)
        mixed, paid = min(1.0, CENTRED * mixed), min(1.0, CENTRED * paid)
        prices = point.prices + paid * turn.prices
        cost = point.cost + paid * turn.cost
        over = np.maximum(self._paid(prices) - cost[:, None], np.finfo(float).tiny)
        parts, left = point.parts + mixed * turn.parts, point.left + mixed * turn.left
        return _Point(parts, left, prices, cost, over)

    def _paid(self, prices: Floats) -> Floats:
        paid: Floats = self._costs + self._needs @ prices
        return paid

    def _needed(self, parts: Floats) -> Floats:
        needed: Floats = np.matmul(parts[:, None, :], self._needs)[:, 0, :].sum(axis=0)
        return needed


class _Newton:
    """The equations of one step; all but those of the prices are eliminated.

    The products are taken choice by choice: they are small then, and no library spreads
    them over threads that wait for each other.
    """

    def __init__(self, needs: Floats, point: _Point, free: Floats) -> None:
        self._needs, self._point = needs, point
        self._ratio = point.parts / point.over
        self._weight = self._ratio.sum(axis=1)
        self._mean = np.matmul(self._ratio[:, None, :], needs)[:, 0, :]
        centred = needs - (self._mean / self._weight[:, None])[:, None, :]
        products = np.matmul(needs.transpose(0, 2, 1), self._ratio[:, :, None] * centred)
        matrix = products.sum(axis=0)
        matrix[np.diag_indices(len(matrix))] += point.left / point.prices
        self._missing = 1 - point.parts.sum(axis=1)
        self._free = free - point.left
        try:
            self._inverse = np.linalg.inv(matrix)
        except np.linalg.LinAlgError:
            self._inverse = np.full_like(matrix, np.nan)
        self.is_sound = bool(np.isfinite(self._inverse).all())

    def towards(self, of_parts: Floats, of_left: Floats) -> _Direction:
        """The change after which products of slacks have changed by so much, to first order."""
        point = self._point
        push = of_parts / point.over
        pull = (self._missing - push.sum(axis=1)) / self._weight
        needed = np.matmul(push[:, None, :], self._needs)[:, 0, :].sum(axis=0)
        right = needed + pull @ self._mean + of_left / point.prices - self._free
        prices = self._inverse @ right
        paid = self._needs @ prices
        cost = pull + (self._ratio * paid).sum(axis=1) / self._weight
        over = paid - cost[:, None]
        parts = push - self._ratio * over
        left = (of_left - point.left * prices) / point.prices
        return _Direction(parts, left, prices, cost, over)


class _Direction(_Point):
    """A change of a point."""

    __slots__ = ()

    def reach(self, point: _Point) -> tuple[float, float]:
        """How far, up to 1, parts and prices can go before one of them is 0."""
        mixed = min(_reach(point.parts, self.parts), _reach(point.left, self.left))
        return mixed, min(_reach(point.over, self.over), _reach(point.prices, self.prices))


def _reach(values: Floats, change: Floats) -> float:
    return float(1 / max(1.0, np.max(-change / values, initial=0.0)))
