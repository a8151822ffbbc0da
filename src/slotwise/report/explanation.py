"""Waits as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slotwise.analysis.waits import MAX_WAITS, MIN_WAIT, Wait
from slotwise.report.numbers import percent, seconds

MAX_HOLDERS = 3
"""The number of jobs named that held the slots while another job waited."""

MIN_FREE = 0.05
"""Free slots are mentioned if they are more than this fraction of all slots."""


def wait_lines(waits: Sequence[Wait]) -> Iterator[str]:
    """Waits of jobs and their reasons, one wait per line."""
    for wait in waits:
        yield f"{wait.job} {wait_sentence(wait)}"
    if len(waits) == MAX_WAITS:
        yield f"only the {MAX_WAITS} longest waits are listed"
    if not waits:
        yield f"no job waited for longer than {percent(MIN_WAIT)} of the run"


def wait_sentence(wait: Wait) -> str:
    """The duration of a wait, the jobs it waited for, the reason and the remedy.

    The sentence has no subject: the caller puts the name of the job before it.
    """
    parts = [
        f"waited {seconds(wait.seconds)} in pool {wait.pool}, from {seconds(wait.start)} to"
        f" {seconds(wait.end)}{_behind(wait)}"
    ]
    area = wait.held_slot_seconds + wait.free_slot_seconds
    if wait.free_slot_seconds > MIN_FREE * area:
        parts.append(f"{percent(wait.free_slot_seconds / area)} of the slots were free")
    return "; ".join([*parts, *filter(None, (wait.reason, wait.remedy))])


def _behind(wait: Wait) -> str:
    if not wait.holders:
        return ""
    named = wait.holders[:MAX_HOLDERS]
    if len(wait.holders) == MAX_HOLDERS + 1:
        named = wait.holders
    total = wait.held_slot_seconds
    words = []
    for holder in named:
        part = "" if len(wait.holders) == 1 else f" {percent(holder.slot_seconds / total)}"
        where = "" if holder.pool == wait.pool else f" in pool {holder.pool}"
        words.append(f"{holder.job}{where}{part}")
    if more := len(wait.holders) - len(named):
        words.append(f"{more} more jobs")
    return f", behind {', '.join(words)}"
