"""The layout of pictures of dataflows: bundles in layers, groups side by side.

Data flows downwards. A block is a bundle, an input file or an output. The layer of a block is
the length of the longest path to it. In a bundle each group has a column of its own, so that
frames never overlap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from slotwise.insight.report.dataflow.texts import source_text
from slotwise.jobs.dataflow.nodes import OUT, RUNNING, Graph
from slotwise.jobs.dataflow.stages import StagedGraph

LETTER = 7.2
BOX_HEIGHT = 42.0
MIN_BOX_WIDTH = 84.0
GAP = 26.0
LAYER_GAP = 64.0
FRAME = 14.0
SWEEPS = 8


@dataclass(frozen=True, slots=True)
class Box:
    """A node, an input or an output, with two lines of text."""

    place: Rect
    title: str
    note: str
    is_file: bool


@dataclass
class LaidOut:
    """A bundle or a file: its boxes and frames, relative to its upper left corner."""

    boxes: dict[str, Box] = field(default_factory=dict)
    groups: list[Rect] = field(default_factory=list)
    is_bundle: bool = False
    width: float = 0.0
    height: float = 0.0
    x: float = 0.0
    y: float = 0.0


@dataclass(frozen=True)
class Drawing:
    """Boxes by name, frames, and the points through which edges pass.

    Edges are numbered: channels first, then outputs.
    """

    boxes: Mapping[str, Box]
    groups: Sequence[Rect]
    bundles: Sequence[Rect]
    paths: Mapping[int, Sequence[Point]]
    width: float
    height: float


def arrange(staged: StagedGraph) -> Drawing:
    """Lay out a dataflow. Deterministic; O(layers x edges) for the order within layers."""
    graph = staged.graph
    blocks = _blocks(graph)
    block_of = {name: number for number, block in enumerate(blocks) for name in block.boxes}
    edges = [
        (_input(graph, c.writer) if c.kind == "direct" else c.writer, c.reader)
        for c in graph.channels
    ]
    edges += [(written.node, f">{n}") for n, written in enumerate(graph.written)]
    joined = {(block_of[one], block_of[other]) for one, other in edges}
    layers, chains = _layers(blocks, sorted(pair for pair in joined if pair[0] != pair[1]))
    _place(blocks, layers, [pair for chain in chains.values() for pair in pairwise(chain)])
    boxes = {
        name: Box(box.place.moved(block.x, block.y), box.title, box.note, box.is_file)
        for block in blocks
        for name, box in block.boxes.items()
    }
    groups = [rect.moved(block.x, block.y) for block in blocks for rect in block.groups]
    bundles = [
        Rect(block.x, block.y, block.width, block.height) for block in blocks if block.is_bundle
    ]
    passed = [
        _passed(blocks, chains.get((block_of[one], block_of[other]), ()))
        for one, other in edges
    ]
    paths: dict[int, list[Point]] = {}
    for _ in range(2):  # The second pass orders the ends of edges by the paths of the first.
        router = Router([box.place for box in boxes.values()])
        for place, (begin, end) in enumerate(_ports(boxes, edges, paths)):
            paths[place] = router.around([begin, *passed[place], end])
    return Drawing(
        boxes,
        groups,
        bundles,
        paths,
        max(block.x + block.width for block in blocks),
        max(block.y + block.height for block in blocks),
    )


def _blocks(graph: Graph) -> list[LaidOut]:
    """The blocks in the order of the nodes: inputs, bundles, outputs."""
    blocks, seen = [], set()
    for name in graph.nodes:
        if name in seen:
            continue
        if not graph.runs(name):
            seen.add(name)
            blocks.append(_single(name, name, source_text(graph.nodes[name])))
            continue
        bundle = _joined(graph, name, RUNNING)
        seen.update(bundle)
        for one in bundle:
            if any(channel.kind == "direct" for channel in graph.outputs(one)):
                note = source_text(graph.nodes[one])
                blocks.append(_single(_input(graph, one), one, note))
        blocks.append(_bundle(graph, bundle))
    for number, written in enumerate(graph.written):
        note = "" if written.output == OUT else written.output
        title = written.folder or "output"
        blocks.append(_single(f">{number}", title, note or written.output_format))
    return blocks


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


def _single(name: str, title: str, note: str) -> LaidOut:
    width = _width(title, note)
    box = Box(Rect(0, 0, width, BOX_HEIGHT), title, note, True)
    return LaidOut({name: box}, width=width, height=BOX_HEIGHT)


def _bundle(graph: Graph, nodes: Sequence[str]) -> LaidOut:
    """Lay out a bundle: rows by the longest path in it, a column for each group."""
    row: dict[str, int] = {}
    for name in nodes:
        before = [row[c.writer] + 1 for c in graph.inputs(name) if c.kind in RUNNING]
        row[name] = max(before, default=0)
    for name in nodes:  # Without inputs in the bundle: directly above the first reader.
        if not any(c.kind in RUNNING for c in graph.inputs(name)):
            after = [row[c.reader] - 1 for c in graph.outputs(name) if c.kind in RUNNING]
            row[name] = min(after, default=0)
    is_group = len(nodes) > 1 and len(_joined(graph, nodes[0], ("shm",))) == len(nodes)
    block = LaidOut(is_bundle=len(nodes) > 1 and not is_group)
    margin = FRAME * 2 if block.is_bundle else FRAME * is_group
    x, seen = margin, set[str]()
    for name in nodes:
        if name in seen:
            continue
        group = _joined(graph, name, ("shm",))
        seen.update(group)
        rows: dict[int, list[str]] = {}
        for one in group:
            rows.setdefault(row[one], []).append(one)
        notes = {one: _note(graph, one) for one in group}
        widths = {one: _width(one, notes[one]) for one in group}
        whole = max(sum(widths[o] for o in r) + GAP * (len(r) - 1) for r in rows.values())
        for number, members in rows.items():
            used = sum(widths[o] for o in members) + GAP * (len(members) - 1)
            at = x + (whole - used) / 2
            for one in members:
                y = margin + number * (BOX_HEIGHT + LAYER_GAP)
                place = Rect(at, y, widths[one], BOX_HEIGHT)
                block.boxes[one] = Box(place, one, notes[one], False)
                at += widths[one] + GAP
        if len(group) > 1:
            top = margin + min(rows) * (BOX_HEIGHT + LAYER_GAP)
            height = (max(rows) - min(rows)) * (BOX_HEIGHT + LAYER_GAP) + BOX_HEIGHT
            block.groups.append(Rect(x, top, whole, height).grown(FRAME))
        x += whole + GAP + (FRAME if block.is_bundle else 0)
    block.width = x - GAP - (FRAME if block.is_bundle else 0) + margin
    block.height = 2 * margin + max(row.values()) * (BOX_HEIGHT + LAYER_GAP) + BOX_HEIGHT
    return block


def _note(graph: Graph, name: str) -> str:
    node = graph.nodes[name]
    if node.source is not None:
        return source_text(node)
    return "1 copy" if node.copies == 1 else f"{node.copies} copies"


def _layers(
    blocks: list[LaidOut], between: Sequence[tuple[int, int]]
) -> tuple[list[list[int]], dict[tuple[int, int], list[int]]]:
    """Return the blocks of each layer, and for each edge the blocks that it passes.

    An edge over several layers passes a narrow block without boxes in each of them.
    """
    layer = [0] * len(blocks)
    for _ in blocks:
        moved = False
        for one, other in between:
            if layer[other] <= layer[one]:
                layer[other], moved = layer[one] + 1, True
        if not moved:
            break
    readers: dict[int, list[int]] = {}
    for one, other in between:
        readers.setdefault(one, []).append(other)
    for number, block in enumerate(blocks):  # Files are next to their readers.
        if not block.is_bundle and all(box.is_file for box in block.boxes.values()):
            after = [layer[other] - 1 for other in readers.get(number, ())]
            layer[number] = min(after, default=layer[number])
    layers: list[list[int]] = [[] for _ in range(max(layer) + 1)]
    for number, at in enumerate(layer):
        layers[at].append(number)
    chains: dict[tuple[int, int], list[int]] = {}
    for one, other in between:
        chain = [one]
        for at in range(layer[one] + 1, layer[other]):
            blocks.append(LaidOut(width=8.0))
            chain.append(len(blocks) - 1)
            layers[at].append(len(blocks) - 1)
        chains[one, other] = [*chain, other]
    return layers, chains


def _place(
    blocks: list[LaidOut], layers: Sequence[list[int]], edges: Sequence[tuple[int, int]]
) -> None:
    """Position the blocks, each layer in an order in which few edges cross."""
    near: dict[int, list[int]] = {}
    for one, other in edges:
        near.setdefault(one, []).append(other)
        near.setdefault(other, []).append(one)
    y = FRAME
    for members in layers:
        height = max(blocks[number].height for number in members)
        for number in members:
            block = blocks[number]
            block.y = y + (height - block.height) / 2
            if not block.boxes:
                block.y, block.height = y, height
        y += height + LAYER_GAP
        _in_row(blocks, members, near, first=True)
    for sweep in range(SWEEPS):
        for members in layers if sweep % 2 else reversed(layers):
            _in_row(blocks, members, near)
    left = min(block.x for block in blocks)
    for block in blocks:
        block.x += FRAME - left


def _in_row(
    blocks: Sequence[LaidOut],
    members: list[int],
    near: Mapping[int, Sequence[int]],
    first: bool = False,
) -> None:
    """Order a layer by the positions of neighbours, and move it towards them."""

    def target(number: int) -> float:
        others = near.get(number, ())
        if first or not others:
            return blocks[number].x + blocks[number].width / 2
        return sum(blocks[o].x + blocks[o].width / 2 for o in others) / len(others)

    targets = {number: target(number) for number in members}
    if not first:
        members.sort(key=lambda number: (targets[number], number))
    lefts = []
    right = float("-inf")
    for number in members:
        x = max(targets[number] - blocks[number].width / 2, right)
        lefts.append(x)
        right = x + blocks[number].width + GAP
    shift = 0.0
    if not first:
        middles = [x + blocks[n].width / 2 for x, n in zip(lefts, members, strict=True)]
        shift = (sum(middles) - sum(targets.values())) / len(members)
    for x, number in zip(lefts, members, strict=True):
        blocks[number].x = x - shift


def _passed(blocks: Sequence[LaidOut], chain: Sequence[int]) -> list[Point]:
    """The points at which an edge enters and leaves the layers between its ends."""
    points = []
    for number in chain[1:-1]:
        block = blocks[number]
        middle = block.x + block.width / 2
        points += [(middle, block.y), (middle, block.y + block.height)]
    return points


def _ports(
    boxes: Mapping[str, Box],
    edges: Sequence[tuple[str, str]],
    paths: Mapping[int, Sequence[Point]],
) -> list[tuple[Point, Point]]:
    """The points at which each edge leaves and enters a box, side by side.

    They have the order of the next points on the paths, if known, or else of the other ends.
    """

    def towards(place: int, end: int) -> float:
        if place in paths:
            return paths[place][1 if end == 0 else -2][0]
        return boxes[edges[place][1 - end]].place.middle

    found: list[list[Point]] = [[], []]
    for end in (0, 1):
        at: dict[str, list[int]] = {}
        for place, edge in enumerate(edges):
            at.setdefault(edge[end], []).append(place)
        points: dict[int, Point] = {}
        for name, places in at.items():
            places.sort(key=lambda one: (towards(one, end), one))
            rect = boxes[name].place
            for order, place in enumerate(places):
                x = rect.x + rect.width * (order + 1) / (len(places) + 1)
                points[place] = (x, rect.bottom if end == 0 else rect.y)
        found[end] = [points[place] for place in range(len(edges))]
    return list(zip(found[0], found[1], strict=True))


# Routing: points that lead an edge around the boxes that would hide it.

CLEAR = 4.0
"""The minimum distance of edges from boxes."""

BESIDE, APART = 9.0, 5.0
"""The distance from a box of the first edge around it, and between further ones."""

MAX_TURNS = 30
"""The maximum number of boxes that an edge goes around."""


class Router:
    """Routes the edges of a drawing around its boxes, one after the other."""

    def __init__(self, boxes: Sequence[Rect]) -> None:
        self._boxes = boxes
        self._passed: Counter[tuple[Rect, bool]] = Counter()

    def around(self, points: Sequence[Point]) -> list[Point]:
        """Return the points of a downward edge, with further ones beside boxes in its way.

        The boxes at its ends do not count: it only touches their borders.
        """
        found = list(points)
        for _ in range(MAX_TURNS):
            hit = self._first_hit(found)
            if hit is None:
                break
            place, box, x = hit
            beside = self._beside(box, x)
            found[place + 1 : place + 1] = [
                (beside, box.y - CLEAR),
                (beside, box.bottom + CLEAR),
            ]
        return found

    def _first_hit(self, points: Sequence[Point]) -> tuple[int, Rect, float] | None:
        """The first section of the path that meets a box, the box, and the point."""
        for place, (one, other) in enumerate(pairwise(points)):
            low, high = min(one[0], other[0]), max(one[0], other[0])
            near = [
                box
                for box in self._boxes
                if one[1] <= box.y
                and box.bottom <= other[1]
                and box.x - CLEAR < high + 1
                and low - 1 < box.x + box.width + CLEAR
            ]
            for box in sorted(near, key=lambda box: (box.y, box.x)):
                wide = box.grown(CLEAR - 1)
                for x, y in curve(one, other):
                    if wide.x < x < wide.x + wide.width and wide.y < y < wide.bottom:
                        return place, box, x
        return None

    def _beside(self, box: Rect, x: float) -> float:
        """The x at which to pass a box, on the nearer side without other boxes."""
        sides = [self._free(box, is_right=is_right) for is_right in (False, True)]
        is_right = abs(sides[1] - x) < abs(sides[0] - x)
        number = self._passed[box, is_right] % 3
        self._passed[box, is_right] += 1
        return sides[is_right] + number * (APART if is_right else -APART)

    def _free(self, box: Rect, *, is_right: bool) -> float:
        """The first x on a side of a box at which no other box is beside it."""
        x = box.x + box.width + BESIDE if is_right else box.x - BESIDE
        level = [
            o for o in self._boxes if o.y < box.bottom + CLEAR and box.y - CLEAR < o.bottom
        ]
        for other in sorted(level, key=lambda o: o.x, reverse=not is_right):
            if other.x - CLEAR < x < other.x + other.width + CLEAR:
                x = other.x + other.width + BESIDE if is_right else other.x - BESIDE
        return x


def curve(one: Point, other: Point, steps: int = 24) -> Iterator[Point]:
    """The control points of the curve between two points, with vertical ends."""
    for step in range(1, steps):
        yield on_curve(one, other, step / steps)


def on_curve(one: Point, other: Point, part: float) -> Point:
    """The point of a cubic curve at a parameter from 0 to 1."""
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
    def middle(self) -> float:
        """The centre, from left to right."""
        return self.x + self.width / 2

    def overlaps(self, other: Rect) -> bool:
        """Whether the two have a point in common."""
        return (
            self.x < other.x + other.width
            and other.x < self.x + self.width
            and self.y < other.bottom
            and other.y < self.bottom
        )

    def grown(self, by: float) -> Rect:
        """The rectangle with a margin."""
        return Rect(self.x - by, self.y - by, self.width + 2 * by, self.height + 2 * by)

    def moved(self, x: float, y: float) -> Rect:
        """The rectangle at another place."""
        return Rect(self.x + x, self.y + y, self.width, self.height)
