"""What was measured of one finished task: the size of its input and how long it took."""

from __future__ import annotations

from dataclasses import dataclass

Sizes = int | tuple[int, ...]
"""The input bytes attributed to each task of a phase: one number for all, or one for each."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One finished task of a program.

    bytes    the part of the input of its job that is attributed to it
    host     where it ran
    speed    the stated speed of the host
    seconds  how long it computed
    """

    program: str
    phase: str
    bytes: int
    host: str
    speed: float
    seconds: float
