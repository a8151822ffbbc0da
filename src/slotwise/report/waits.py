"""The section of the page that says who waited, behind whom, and what would have helped."""

from __future__ import annotations

from html import escape

from slotwise.analysis.waits import WAIT_LEAST, Wait, worst_waits
from slotwise.report.explanation import wait_sentence
from slotwise.report.numbers import percent
from slotwise.report.scene import Scene

MOST_OF_JOB = 2
"""So many waits of a job are told."""

WAITS_LISTED = 40
"""So many waits of a run are told."""

OPEN_MOST = 8
"""A list of more waits is folded away."""


def waits_section(scene: Scene) -> str:
    """The longest waits of each job in each run, the longest first."""
    text = (
        "Times in which a job was there and none of its tasks ran: the longest"
        f" {MOST_OF_JOB} of each job, without those below {percent(WAIT_LEAST)} of the run. The"
        " jobs behind which it waited held the slots meanwhile, each so much of what was held."
        " What would have helped is said where the log proves it."
    )
    parts = [f"<section><h2>Who waited, and why</h2><p>{text}</p>"]
    for name, run, line in zip(scene.names, scene.runs, scene.timelines, strict=True):
        waits = worst_waits(run.log, line, most=WAITS_LISTED, most_of_job=MOST_OF_JOB)
        count = "1 wait" if len(waits) == 1 else f"{len(waits) or 'no'} waits"
        summary = f"<summary>{escape(f'{name}: {count}')}</summary>"
        is_open = " open" if len(waits) <= OPEN_MOST else ""
        items = "".join(map(_item, waits))
        parts.append(f"<details{is_open}>{summary}<ul>{items}</ul></details>")
    return "".join([*parts, "</section>"])


def _item(wait: Wait) -> str:
    return f"<li><strong>{escape(wait.job)}</strong> {escape(wait_sentence(wait))}.</li>"
