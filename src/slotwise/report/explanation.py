"""Explanations and waits as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slotwise.analysis.explain import Explanation, Neighbour, PhaseExplained, ShareExplained
from slotwise.analysis.waits import WAIT_LEAST, WAITS_MOST, Wait
from slotwise.report.numbers import percent, seconds

HOLDERS_MOST = 3
"""The number of jobs named that held the slots while another job waited."""

FREE_LEAST = 0.05
"""Free slots are mentioned if they are more than this fraction of all slots."""


def explanation_lines(explanation: Explanation) -> Iterator[str]:
    """The slots that a job holds at an instant, and the reasons; one fact per line."""
    yield (
        f"{explanation.job} at {explanation.at:.6g} s, in pool {explanation.pool} under"
        f" {explanation.scheduler}: {explanation.status}"
    )
    for phase in explanation.phases:
        yield from _phase_lines(phase)


def wait_lines(waits: Sequence[Wait]) -> Iterator[str]:
    """Waits of jobs and their reasons, one wait per line."""
    for wait in waits:
        yield f"{wait.job} {wait_sentence(wait)}"
    if len(waits) == WAITS_MOST:
        yield f"only the {WAITS_MOST} longest waits are listed"
    if not waits:
        yield f"no job waited for longer than {percent(WAIT_LEAST)} of the run"


def wait_sentence(wait: Wait) -> str:
    """The duration of a wait, the jobs it waited for, the reason and the remedy.

    The sentence has no subject: the caller puts the name of the job before it.
    """
    parts = [
        f"waited {seconds(wait.seconds)} in pool {wait.pool}, from {seconds(wait.start)} to"
        f" {seconds(wait.end)}{_behind(wait)}"
    ]
    area = wait.held_slot_seconds + wait.free_slot_seconds
    if wait.free_slot_seconds > FREE_LEAST * area:
        parts.append(f"{percent(wait.free_slot_seconds / area)} of the slots were free")
    return "; ".join([*parts, *filter(None, (wait.reason, wait.remedy))])


def _behind(wait: Wait) -> str:
    if not wait.holders:
        return ""
    named = wait.holders[:HOLDERS_MOST]
    if len(wait.holders) == HOLDERS_MOST + 1:
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


def _phase_lines(phase: PhaseExplained) -> Iterator[str]:
    stopping = f" ({phase.stopping} asked to stop)" if phase.stopping else ""
    allocated = "" if phase.allocated is None else f" of {phase.allocated:.6g}"
    there = phase.running - sum(phase.silent.values()) - sum(phase.leaving.values())
    slots = "slot" if (there, phase.allocated) == (1, None) else "slots"
    wait = "1 task waits" if phase.pending == 1 else f"{phase.pending} tasks wait"
    done = "1 is done" if phase.done == 1 else f"{phase.done} are done"
    yield (
        f"  {phase.phase}: holds {there}{stopping}{allocated} {slots} of"
        f" kind {phase.slot_kind}; {wait}, {done}"
    )
    yield f"    because {phase.why}"
    if phase.silent:
        held = ", ".join(f"{count} on {host}" for host, count in phase.silent.items())
        yield f"    on unresponsive hosts: {held}"
    if phase.leaving:
        held = ", ".join(f"{count} on {host}" for host, count in phase.leaving.items())
        yield f"    on hosts that leave when their tasks have ended: {held}"
    for share in phase.shares:
        yield f"    pool {share.pool}: {_share(share)}"
    for share in phase.over:
        yield f"    above its share: pool {share.pool}, {_share(share)}"
    if phase.holders:
        held = ", ".join(f"{h.job} {h.running} (pool {h.pool})" for h in phase.holders)
        more = f" and {phase.holders_more} more jobs" if phase.holders_more else ""
        yield f"    these slots are held by {held}{more}"
    if phase.before:
        yield f"    served before it in its pool: {_names(phase.before)}"
    if phase.after:
        yield f"    served after it: {_names(phase.after)}"


def _share(share: ShareExplained) -> str:
    limits = [f"min {share.least:g}"] if share.least else []
    limits += [] if share.most is None else [f"max {share.most:g}"]
    text = f"holds {share.running} of its share of {share.share:.6g}, can use {share.demand}"
    text += f" ({', '.join(limits)})" if limits else ""
    return text + (f"; {share.lacks}" if share.lacks else "")


def _names(neighbours: Sequence[Neighbour]) -> str:
    return ", ".join(
        f"{n.job}/{n.phase} ({n.running} of {n.allocated:.4g})" for n in neighbours
    )
