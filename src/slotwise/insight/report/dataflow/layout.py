"""The layout of pictures of dataflows: layers of boxes, and lanes for the edges between them.

Data flows downwards. A block is an input, an output or a bundle; a bundle has a layer for each
row of its nodes, and a column for each group. It begins below all blocks that it reads. An edge
over several layers has a lane of its own, which is a block, too. All blocks have one order from
left to right, close to that of their neighbours, as in Sugiyama et al., "Methods for Visual
Understanding of Hierarchical System Structures" (1981). So frames do not overlap. No box hides
an edge, because other edges end at boxes of neighbouring layers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf

from slotwise.insight.report.dataflow.texts import source_text
from slotwise.jobs.dataflow.nodes import OUT, RUNNING, Graph
from slotwise.jobs.dataflow.stages import StagedGraph

LETTER = 7.2
BOX_HEIGHT = 42.0
MIN_BOX_WIDTH = 84.0
GAP = 26.0
LANE_GAP = 12.0
FRAME = 14.0
LAYER = BOX_HEIGHT + 64.0
"""The distance of two layers."""

SWEEPS = 24


@dataclass(frozen=True, slots=True)
class Box:
    """A node, an input or an output, with two lines of text; or a lane, without."""

    place: Rect
    title: str = ""
    note: str = ""
    is_file: bool = False


@dataclass
class DrawnBlock:
    """Boxes that are placed together, with places relative to the block, and their groups.

    It occupies `height` layers from `layer` on, with a `gap` on its right. `rows` has the row
    of each box.
    """

    boxes: dict[str, Box] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    groups: list[list[str]] = field(default_factory=list)
    width: float = 0.0
    gap: float = GAP
    layer: int = 0
    height: int = 1
    x: float = 0.0

    def placed(self) -> dict[str, Box]:
        """The boxes with their places in the drawing."""
        y = 3 * FRAME + self.layer * LAYER
        return {
            name: replace(box, place=box.place.moved(self.x, y))
            for name, box in self.boxes.items()
        }


@dataclass(frozen=True)
class Drawing:
    """Boxes by name, frames, and the points through which edges pass.

    Edges are numbered: channels first, then outputs.
    """

    boxes: Mapping[str, Box]
    groups: Sequence[Rect]
    bundles: Sequence[Rect]
    paths: Sequence[Sequence[Point]]
    width: float
    height: float


def arrange(staged: StagedGraph) -> Drawing:
    """Lay out a dataflow. Costs as for `laid_out`."""
    graph = staged.graph
    edges = [
        (_input(graph, c.writer) if c.kind == "direct" else c.writer, c.reader)
        for c in graph.channels
    ]
    edges += [(written.node, f">{n}") for n, written in enumerate(graph.written)]
    return laid_out(list(_blocks(graph)), edges)


def laid_out(blocks: Sequence[DrawnBlock], edges: Sequence[tuple[str, str]]) -> Drawing:
    """Lay out blocks with edges between the boxes of these names.

    Deterministic; O(SWEEPS x (blocks + edges) x layers).
    """
    block_of = {name: block for block in blocks for name in block.boxes}
    _set_layers(blocks, [(block_of[one], block_of[other]) for one, other in edges])
    chains = [list(_chain(block_of, number, *edge)) for number, edge in enumerate(edges)]
    blocks = list({id(block): block for block in block_of.values()}.values())
    _place(blocks, block_of, [pair for chain in chains for pair in pairwise(chain)])
    boxes = {name: box for block in blocks for name, box in block.placed().items()}

    def frame(names: Collection[str], margin: float) -> Rect:
        return _around(boxes[name].place for name in names).grown(margin)

    groups = [frame(g, FRAME) for block in blocks for g in block.groups if len(g) > 1]
    bundles = [frame(block.boxes, 2 * FRAME) for block in blocks if len(block.groups) > 1]
    whole = _around([*(box.place for box in boxes.values()), *groups, *bundles])
    paths = _paths(boxes, chains)
    texts = {name: box for name, box in boxes.items() if box.title}
    return Drawing(texts, groups, bundles, paths, whole.right, whole.bottom)


def _blocks(graph: Graph) -> Iterator[DrawnBlock]:
    """The blocks in the order of the nodes: inputs, bundles, outputs."""
    seen = set[str]()
    for name, node in graph.nodes.items():
        if not graph.runs(name):
            yield _file(name, name, source_text(node))
        elif name not in seen:
            bundle = _joined(graph, name, RUNNING)
            seen.update(bundle)
            for one in bundle:
                if any(channel.kind == "direct" for channel in graph.outputs(one)):
                    yield _file(_input(graph, one), one, source_text(graph.nodes[one]))
            yield _bundle(graph, bundle)
    for number, written in enumerate(graph.written):
        note = written.output_format if written.output == OUT else written.output
        yield _file(f">{number}", written.folder or "output", note)


def _input(graph: Graph, source: str) -> str:
    """The box from which direct readers read: a separate one if the source runs."""
    return f"<{source}" if graph.runs(source) else source


def _joined(graph: Graph, start: str, kinds: Sequence[str]) -> list[str]:
    """The nodes connected to `start` by channels of these kinds, in the order of the graph."""
    found, pending = {start}, [start]
    while pending:
        name = pending.pop()
        for channel in (*graph.inputs(name), *graph.outputs(name)):
            if channel.kind in kinds:
                for other in {channel.writer, channel.reader} - found:
                    found.add(other)
                    pending.append(other)
    return [name for name in graph.nodes if name in found]


def _width(*texts: str) -> float:
    return max(MIN_BOX_WIDTH, 20 + LETTER * max(map(len, texts)))


def _file(name: str, title: str, note: str) -> DrawnBlock:
    return single(name, title, note, is_file=True)


def single(name: str, title: str, note: str, *, is_file: bool = False) -> DrawnBlock:
    """A block of one box. Unless it is a file, it stays below all that it reads."""
    place = Rect(0, 0, _width(title, note), BOX_HEIGHT)
    groups = [] if is_file else [[name]]
    box = Box(place, title, note, is_file)
    return DrawnBlock({name: box}, {name: 0}, groups, width=place.width)


def _bundle(graph: Graph, nodes: Sequence[str]) -> DrawnBlock:
    """Lay out a bundle: rows by the longest path in it, a column for each group."""
    block = DrawnBlock()
    for name in nodes:
        above = [block.rows[c.writer] for c in graph.inputs(name) if c.kind in RUNNING]
        block.rows[name] = max(above, default=-1) + 1
    for name in nodes:  # A source is directly above its first reader.
        below = [block.rows[c.reader] for c in graph.outputs(name) if c.kind in RUNNING]
        if block.rows[name] == 0 and below:
            block.rows[name] = min(below) - 1
    block.height = max(block.rows.values()) + 1
    block.groups = list(
        {min(g): g for n in nodes if (g := _joined(graph, n, ("shm",)))}.values()
    )
    margin = 2 * FRAME if len(block.groups) > 1 else FRAME if len(nodes) > 1 else 0.0
    x = margin
    for group in block.groups:
        notes = {name: _note(graph, name) for name in group}
        rows: defaultdict[int, dict[str, float]] = defaultdict(dict)
        for name in group:
            rows[block.rows[name]][name] = _width(name, notes[name])
        whole = max(sum(row.values()) + GAP * (len(row) - 1) for row in rows.values())
        for number, row in rows.items():
            at = x + (whole - sum(row.values()) - GAP * (len(row) - 1)) / 2
            for name, width in row.items():
                place = Rect(at, number * LAYER, width, BOX_HEIGHT)
                block.boxes[name] = Box(place, name, notes[name])
                at += width + GAP
        x += whole + GAP + FRAME
    block.width = x - GAP - FRAME + margin
    return block


def _note(graph: Graph, name: str) -> str:
    node = graph.nodes[name]
    if node.source is not None:
        return source_text(node)
    return "1 copy" if node.copies == 1 else f"{node.copies} copies"


# Layers, lanes, and the order from left to right.


def _set_layers(
    blocks: Sequence[DrawnBlock], joined: Sequence[tuple[DrawnBlock, DrawnBlock]]
) -> None:
    """Put each block below those that it reads, and inputs directly above a reader."""
    between = [(one, other) for one, other in joined if one is not other]
    while low := [pair for pair in between if pair[1].layer < pair[0].layer + pair[0].height]:
        for one, other in low:
            other.layer = max(other.layer, one.layer + one.height)
    for block in blocks:
        readers = [other.layer for one, other in between if one is block]
        if not block.groups and readers:
            block.layer = min(readers) - 1


def _chain(block_of: dict[str, DrawnBlock], number: int, one: str, other: str) -> Iterator[str]:
    """Yield the ends of an edge, and a new lane between them if they are layers apart."""
    begin, end = (block_of[name].layer + block_of[name].rows[name] for name in (one, other))
    yield one
    if end > begin + 1:
        lane, height = f"|{number}", end - begin - 1
        box = Box(Rect(0, 0, 0, (height - 1) * LAYER + BOX_HEIGHT))
        block_of[lane] = DrawnBlock({lane: box}, gap=LANE_GAP, layer=begin + 1, height=height)
        yield lane
    yield other


def _place(
    blocks: Sequence[DrawnBlock],
    block_of: Mapping[str, DrawnBlock],
    links: Sequence[tuple[str, str]],
) -> None:
    """Move the blocks step by step to where their edges are short."""

    def middle(name: str) -> float:
        return block_of[name].x + block_of[name].boxes[name].place.middle

    counts = Counter(block.layer for block in blocks)
    places = {layer: -count / 2 for layer, count in counts.items()}
    targets = []
    for block in blocks:  # At first, those of a layer are side by side in its middle.
        targets.append(places[block.layer] * (MIN_BOX_WIDTH + GAP))
        places[block.layer] += 1
    for _ in range(SWEEPS):
        _pack(blocks, targets)
        shifts: defaultdict[int, list[float]] = defaultdict(list)
        for one, other in links:
            shift = middle(other) - middle(one)
            shifts[id(block_of[one])].append(shift)
            shifts[id(block_of[other])].append(-shift)
        # Half of the way, because neighbours move as well.
        of_blocks = (shifts[id(block)] or [0.0] for block in blocks)
        targets = [
            block.x + sum(of_block) / len(of_block) / 2
            for block, of_block in zip(blocks, of_blocks, strict=True)
        ]
    left = min(block.x for block in blocks)
    for block in blocks:
        block.x += FRAME - left


def _pack(blocks: Sequence[DrawnBlock], targets: Sequence[float]) -> None:
    """Order the blocks by their targets, and place them as close to these as possible.

    A position is the mean of those from left to right and from right to left: both keep the
    gaps, and so does their mean.
    """
    order = sorted(range(len(blocks)), key=lambda number: (targets[number], number))
    ends: defaultdict[int, float] = defaultdict(lambda: -inf)
    for number in order:
        block = blocks[number]
        layers = range(block.layer, block.layer + block.height)
        block.x = max(targets[number], *(ends[at] for at in layers))
        ends.update(dict.fromkeys(layers, block.x + block.width + block.gap))
    starts: defaultdict[int, float] = defaultdict(lambda: inf)
    for number in reversed(order):
        block = blocks[number]
        layers = range(block.layer, block.layer + block.height)
        x = min(targets[number], *(starts[at] - block.gap - block.width for at in layers))
        starts.update(dict.fromkeys(layers, x))
        block.x = (block.x + x) / 2


def _paths(boxes: Mapping[str, Box], chains: Sequence[Sequence[str]]) -> list[list[Point]]:
    """The points of each edge. At a box, edges are side by side in the order of their ends."""
    leaving: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
    entering: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
    for number, chain in enumerate(chains):
        for one, other in pairwise(chain):
            leaving[one].append((boxes[other].place.middle, number))
            entering[other].append((boxes[one].place.middle, number))

    def port(name: str, number: int, edges: Sequence[tuple[float, int]]) -> float:
        order = [edge for _, edge in sorted(edges)].index(number)
        place = boxes[name].place
        return place.x + place.width * (order + 1) / (len(edges) + 1)

    paths: list[list[Point]] = []
    for number, chain in enumerate(chains):
        paths.append([])
        for one, other in pairwise(chain):
            begin, end = port(one, number, leaving[one]), port(other, number, entering[other])
            paths[-1].append((begin, boxes[one].place.bottom))
            paths[-1].append((end, boxes[other].place.y))
    return paths


def curve(one: Point, other: Point, part: float) -> Point:
    """The point of the curve between two points, with vertical ends, at a part from 0 to 1."""
    (x, y), (to_x, to_y) = one, other
    along = part * part * (3 - 2 * part)
    high = 1.5 * part * (1 - part) + part**3
    return x + (to_x - x) * along, y + (to_y - y) * high


# Points and rectangles of a drawing; y grows downwards.

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Rect:
    """A rectangle; x and y are its upper left corner."""

    x: float
    y: float
    width: float
    height: float

    @property
    def bottom(self) -> float:
        """The lower edge."""
        return self.y + self.height

    @property
    def right(self) -> float:
        """The right edge."""
        return self.x + self.width

    @property
    def middle(self) -> float:
        """The centre, from left to right."""
        return self.x + self.width / 2

    def overlaps(self, other: Rect) -> bool:
        """Whether the two have a point in common."""
        return max(self.x, other.x) < min(self.right, other.right) and max(
            self.y, other.y
        ) < min(self.bottom, other.bottom)

    def grown(self, by: float) -> Rect:
        """The rectangle with a margin."""
        return Rect(self.x - by, self.y - by, self.width + 2 * by, self.height + 2 * by)

    def moved(self, x: float, y: float) -> Rect:
        """The rectangle at another place."""
        return Rect(self.x + x, self.y + y, self.width, self.height)


def _around(rects: Iterable[Rect]) -> Rect:
    """The smallest rectangle around some others."""
    found = list(rects)
    x, y = min(rect.x for rect in found), min(rect.y for rect in found)
    right, bottom = max(rect.right for rect in found), max(rect.bottom for rect in found)
    return Rect(x, y, right - x, bottom - y)
