"""Colours of jobs, the same in every picture, and distinguishable by colour-blind readers."""

from __future__ import annotations

from collections.abc import Sequence

INK = "#1f2933"
MUTED = "#7b8794"
RULE = "#d9dee4"
BAD = "#c1121f"
BAR = "#9fb3c8"
BEST = "#2f6690"

# Hues after Okabe and Ito, and Tol; neighbours differ in lightness as well as in hue.
JOBS = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#882255",
    "#a3a33d",
    "#44449c",
    "#d8c271",
    "#d55e00",
)
POOLS = ("#4477aa", "#ccbb44", "#aa3377", "#228833", "#66ccee", "#ee8866", "#999999")
RUNS = ("#0072b2", "#e69f00", "#009e73", "#882255", "#56b4e9", "#7b8794", "#d55e00")

# When all hues are used, they repeat in a lighter tint, then in a darker one.
_TINTS = (0.0, 0.4, -0.35)


def job_colours(jobs: Sequence[str]) -> dict[str, str]:
    """A colour for each job, by its position."""
    rounds = [(hue, tint) for tint in _TINTS for hue in JOBS]
    return {job: tinted(*rounds[place % len(rounds)]) for place, job in enumerate(jobs)}


def cycle(names: Sequence[str], colours: Sequence[str]) -> dict[str, str]:
    """A colour for each name, by its position, from a short palette."""
    return {name: colours[place % len(colours)] for place, name in enumerate(names)}


def tinted(colour: str, tint: float) -> str:
    """A colour moved towards white (tint > 0) or black (tint < 0)."""
    goal = 255 if tint > 0 else 0
    channels = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    moved = [round(channel + abs(tint) * (goal - channel)) for channel in channels]
    return "#" + "".join(f"{channel:02x}" for channel in moved)
