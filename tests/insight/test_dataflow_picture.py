"""Pictures of dataflows: edges pass beside boxes, and notebooks show them."""

from __future__ import annotations

import re
from base64 import b64decode
from itertools import combinations, pairwise
from pathlib import Path
from xml.etree import ElementTree

from hypothesis import assume, given, settings

import slotwise
from random_dataflows import dataflows
from slotwise.core.errors import InputError
from slotwise.insight.report.dataflow.layout import arrange, curve
from slotwise.insight.report.dataflow.svg import page_of, svg_of
from slotwise.jobs.dataflow.stages import StagedGraph, derive
from tiers import examples


def itself(*streams: object) -> object:
    """All records."""
    for stream in streams:
        yield from stream


def hidden(staged: StagedGraph) -> list[str]:
    """The edges that meet a box between their ends, with the box."""
    drawing = arrange(staged)
    return [
        f"edge {place} behind {name}"
        for place, points in enumerate(drawing.paths)
        for name, box in drawing.boxes.items()
        for one, other in pairwise(points)
        for x, y in (curve(one, other, step / 50) for step in range(1, 50))
        if box.place.grown(-1).x < x < box.place.x + box.place.width - 1
        and box.place.y + 1 < y < box.place.bottom - 1
    ]


def chain() -> slotwise.Dataflow:
    """A group in which the first node writes to all others, and an output of it."""
    flow = slotwise.Dataflow()
    first = flow.node(itself, flow.values([1, 2]), name="first")
    last = first
    for number in range(4):
        last = flow.node(itself, last.shm(), first.shm(), name=f"n{number}")
    flow.write(last, first)
    return flow


def test_every_colour_has_another_on_a_dark_page() -> None:
    """The style sheet of the page replaces them."""
    svg = svg_of(derive(chain().graph()))
    colours = set(re.findall(r'(?:fill|stroke)="(white|#[0-9a-f]{6})"', svg))
    page = page_of([("flow", svg)])
    assert {"white", "#d55e00"} < colours
    assert all(f'svg [fill="{colour}"] {{ fill: #' in page for colour in colours)


def test_edges_of_a_group_pass_beside_its_nodes() -> None:
    """Also those that leave the group."""
    assert hidden(derive(chain().graph())) == []


@settings(max_examples=examples(25, slow=1000))
@given(dataflows())
def test_no_edge_passes_behind_a_node(flow: slotwise.Dataflow) -> None:
    """In any graph, also if some nodes read the input of a source that runs, too.

    Nor do boxes, groups or bundles overlap.
    """
    try:
        staged = derive(flow.graph())
    except InputError:
        assume(False)
    assert hidden(staged) == []
    drawing = arrange(staged)
    for places in (
        [box.place for box in drawing.boxes.values()],
        drawing.groups,
        drawing.bundles,
    ):
        assert not any(one.overlaps(other) for one, other in combinations(places, 2))


def test_a_notebook_shows_the_picture() -> None:
    """An image with its data."""
    html = chain()._repr_html_()
    data = html.partition("data:image/svg+xml;base64,")[2].partition('"')[0]
    svg = ElementTree.fromstring(b64decode(data))
    texts = [text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert {"first", "n0", "n1", "n2", "n3"} <= set(texts)


def test_a_graph_that_cannot_run_yet_is_shown_as_text(tmp_path: Path) -> None:
    """Its input is not there, or it has no nodes."""
    flow = slotwise.Dataflow()
    assert flow._repr_html_() is None
    flow.node(itself, flow.read(tmp_path / "later.txt"))
    assert flow._repr_html_() is None
