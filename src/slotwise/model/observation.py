"""What has been seen of one finished task: how much it took in, and how long it took."""

from __future__ import annotations

from dataclasses import dataclass

Sizes = int | tuple[int, ...]
"""The bytes that stand for each task of a phase: one number for all, or one for each."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One finished task of a program.

    bytes    what it stands for of the input of its job
    host     where it ran
    speed    the speed that the host was said to have
    seconds  how long it computed
    """

    program: str
    phase: str
    bytes: int
    host: str
    speed: float
    seconds: float
