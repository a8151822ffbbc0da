"""The section of the page about waits: jobs, causes and remedies."""

from __future__ import annotations

from html import escape

from slotwise.analysis.waits import MIN_WAIT, Wait, worst_waits
from slotwise.report.explanation import wait_sentence
from slotwise.report.numbers import percent
from slotwise.report.scene import Scene

MOST_OF_JOB = 2
"""The maximum number of waits listed for a job."""

WAITS_LISTED = 40
"""The maximum number of waits listed for a run."""

MAX_OPEN = 8
"""A list with more waits is folded."""


def waits_section(scene: Scene) -> str:
    """The longest waits of each job in each run, longest first."""
    text = (
        "A wait is a time in which a job has tasks that are not done, and none of them runs."
        f" The {MOST_OF_JOB} longest waits of each job are listed if they exceed"
        f" {percent(MIN_WAIT)} of the run. Each wait names the jobs that held the slots, with"
        " their shares of the held slots. It names a remedy if the log proves one."
    )
    parts = [f"<section><h2>Waits and their causes</h2><p>{text}</p>"]
    for name, run, line in zip(scene.names, scene.runs, scene.timelines, strict=True):
        waits = worst_waits(run.log, line, most=WAITS_LISTED, most_of_job=MOST_OF_JOB)
        count = "1 wait" if len(waits) == 1 else f"{len(waits) or 'no'} waits"
        summary = f"<summary>{escape(f'{name}: {count}')}</summary>"
        is_open = " open" if len(waits) <= MAX_OPEN else ""
        items = "".join(map(_item, waits))
        parts.append(f"<details{is_open}>{summary}<ul>{items}</ul></details>")
    return "".join([*parts, "</section>"])


def _item(wait: Wait) -> str:
    return f"<li><strong>{escape(wait.job)}</strong> {escape(wait_sentence(wait))}.</li>"
