"""An interior point method for choices that share a few resources."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slotwise.core.costs import Floats

CENTRED = 0.99
"""A step covers this part of the way to where the first variable would become 0."""

START = 0.1
"""The initial distance of slacks from 0, where all other values are about 1."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """Prices of K resources, >= 0, and the parts (J x N) of the options that J choices mix."""

    prices: Floats
    parts: Floats


def best_prices(
    costs: Floats, needs: Floats, room: Floats, scale: float, steps: int, gap: float
) -> Mixture:
    """Nearly optimal prices, >= 0, of K resources that J choices share, and the primal mixture.

    Each of J choices picks one of its N options, or a mixture. Option n of choice j costs
    costs[j, n] and needs needs[j, n, k] of resource k, of which room[k] is available. The
    prices are nearly optimal for the dual of this linear program: they nearly maximise sum_j
    min_n (costs + needs @ prices) - room @ prices. They are the best prices in at most `steps`
    steps; the method ends earlier at a relative distance of `gap` from the optimum. If the
    resources cannot suffice, prices are as high as the steps allow. The parts are nearly
    optimal, without a guarantee. `scale`, > 0, is about the largest difference of costs.

    Mehrotra's method. The choices are eliminated from each system of equations, so a step costs
    O(J N K^2) and a system of K equations.
    """
    program = _Program((costs - costs.min(axis=1, keepdims=True)) / scale, needs, room)
    point = program.start()
    best, value = point, program.value(point)
    with np.errstate(all="ignore"):  # The search ends when numbers become too large.
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
    """A primal and dual point.

    parts   J x N, > 0: finally they add up to 1 for each choice
    left    K, > 0: finally the unused part of each resource
    prices  K, > 0
    cost    J: for each choice, at most the cost of its cheapest option
    over    J x N, > 0: the cost of each option at these prices less `cost`
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
        """The initial point: equal parts and equal prices."""
        parts = np.full(self._costs.shape, 1 / self._costs.shape[1])
        left = np.maximum(self._room - self._needed(parts), START * self._room.mean())
        prices = np.full(len(self._room), 1 / len(self._room))
        paid = self._paid(prices)
        cost = paid.min(axis=1) - START
        return _Point(parts, left, prices, cost, paid - cost[:, None])

    def value(self, point: _Point) -> float:
        """The lower bound of the prices: the value of the dual."""
        return float(self._paid(point.prices).min(axis=1).sum() - self._room @ point.prices)

    def apart(self, point: _Point) -> float:
        """The complementarity gap, which each step reduces."""
        return float((point.parts * point.over).sum() + point.left @ point.prices)

    def step(self, point: _Point) -> _Point | None:
        """One predictor-corrector step; None if rounding allows no further one."""
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

    Products are computed choice by choice: they are small, so that no library distributes them
    over threads that wait for each other.
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
        """The direction that changes the products of slacks so, to first order."""
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
        """The step lengths, up to 1, of primal and dual until one variable is 0."""
        mixed = min(_reach(point.parts, self.parts), _reach(point.left, self.left))
        return mixed, min(_reach(point.over, self.over), _reach(point.prices, self.prices))


def _reach(values: Floats, change: Floats) -> float:
    return float(1 / max(1.0, np.max(-change / values, initial=0.0)))
