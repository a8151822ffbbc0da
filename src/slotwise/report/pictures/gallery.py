"""All pictures of a report, in the order in which they are read."""

from __future__ import annotations

from slotwise.report.pictures import comparison, held, hosts, jobs, responses, slots
from slotwise.report.pictures.picture import Picture
from slotwise.report.scene import Scene


def draw_all(scene: Scene) -> list[Picture]:
    """The pictures that say something about these runs."""
    pictures = []
    if len(scene.runs) > 1:
        pictures.append(comparison.draw(scene))
        pictures.append(responses.draw(scene))
    pictures.append(jobs.draw(scene))
    pictures.append(held.draw_by_job(scene))
    if len(scene.pool_colours) > 1:
        pictures.append(held.draw_by_pool(scene))
    pictures.append(slots.draw(scene) if slots.is_readable(scene) else hosts.draw(scene))
    return pictures
