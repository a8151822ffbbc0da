"""An explanation as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slotwise.analysis.explain import Explanation, Neighbour, PhaseExplained, ShareExplained


def explanation_lines(explanation: Explanation) -> Iterator[str]:
    """Who holds what at this instant, and why, a line a fact."""
    yield (
        f"{explanation.job} at {explanation.at:.6g} s, in pool {explanation.pool} under"
        f" {explanation.scheduler}: {explanation.status}"
    )
    for phase in explanation.phases:
        yield from _phase_lines(phase)


def _phase_lines(phase: PhaseExplained) -> Iterator[str]:
    stopping = f" ({phase.stopping} told to stop)" if phase.stopping else ""
    allocated = "" if phase.allocated is None else f" of {phase.allocated:.6g}"
    slots = "slot" if (phase.running, phase.allocated) == (1, None) else "slots"
    wait = "1 task waits" if phase.pending == 1 else f"{phase.pending} tasks wait"
    done = "1 is done" if phase.done == 1 else f"{phase.done} are done"
    yield (
        f"  {phase.phase}: holds {phase.running}{stopping}{allocated} {slots} of"
        f" kind {phase.slot_kind}; {wait}, {done}"
    )
    yield f"    because {phase.why}"
    if phase.silent:
        held = ", ".join(f"{count} on {host}" for host, count in phase.silent.items())
        yield f"    on hosts that are silent: {held}"
    for share in phase.shares:
        yield f"    pool {share.pool}: {_share(share)}"
    for share in phase.over:
        yield f"    above its share: pool {share.pool}, {_share(share)}"
    if phase.before:
        yield f"    served before it in its pool: {_names(phase.before)}"
    if phase.after:
        yield f"    served after it: {_names(phase.after)}"


def _share(share: ShareExplained) -> str:
    limits = [f"least {share.least:g}"] if share.least else []
    limits += [] if share.most is None else [f"most {share.most:g}"]
    text = f"holds {share.running} of its share of {share.share:.6g}, can use {share.demand}"
    text += f" ({', '.join(limits)})" if limits else ""
    return text + (f"; {share.lacks}" if share.lacks else "")


def _names(neighbours: Sequence[Neighbour]) -> str:
    return ", ".join(
        f"{n.job}/{n.phase} ({n.running} of {n.allocated:.4g})" for n in neighbours
    )
