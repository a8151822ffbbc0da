"""The pictures of a report, in reading order."""

from __future__ import annotations

from slotwise.insight.report.pictures import comparison, held, jobs, responses, usage
from slotwise.insight.report.pictures.picture import Picture
from slotwise.insight.report.reported import Scene


def draw_first(scene: Scene) -> list[Picture]:
    """The most important picture of one run, or pictures of several."""
    if len(scene.runs) > 1:
        return [comparison.draw(scene), responses.draw(scene)]
    return [jobs.draw(scene)]


def draw_all(scene: Scene) -> list[Picture]:
    """All pictures that apply to these runs."""
    pictures = draw_first(scene)
    if len(scene.runs) > 1:
        pictures.append(jobs.draw(scene))
    pictures.append(held.draw_by_job(scene))
    if len(scene.pool_colours) > 1:
        pictures.append(held.draw_by_pool(scene))
    pictures += held.draw_resources(scene)
    pictures.append(usage.draw(scene))
    return pictures
