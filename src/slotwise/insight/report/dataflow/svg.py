"""The picture of a dataflow, after Figure 1 of the report on Hammr."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from slotwise.insight.report.dataflow.layout import (
    FRAME,
    LETTER,
    Box,
    Drawing,
    Point,
    Rect,
    arrange,
    curve,
)
from slotwise.insight.report.dataflow.texts import label_of
from slotwise.insight.report.page import BEGIN, STYLE
from slotwise.insight.report.text import DARK, INK, MUTED, printable
from slotwise.jobs.dataflow.stages import StagedGraph

KINDS = {
    "file": (INK, "", 1.6, "file: the reader starts when the writer is done"),
    "tcp": ("#0072b2", "8 4", 1.8, "tcp: both run at the same time"),
    "shm": ("#d55e00", "2 4", 2.6, "shm: both run at the same time on one host"),
    "direct": (MUTED, "", 1.0, "direct: the reader reads the input itself"),
    "after": (INK, "", 1.6, "begins when the job above is done"),
    "run": (MUTED, "", 1.6, "begins when the job above is done or has failed"),
    "each": ("#0072b2", "8 4", 1.8, "each task begins when that of the job above is done"),
}
"""The colour, dashes, width and meaning of lines: kinds of channels, and waits of jobs."""

DARK_PAGE = DARK | {
    "#f5f7fa": "#232c36",
    "#e8f1f8": "#20384b",
    "#52606d": "#b3bdc7",
    "#0072b2": "#56b4e9",
    "#d55e00": "#ff9b54",
}
"""The colours of pictures on a dark page. Files of pictures are light everywhere."""

MARK = '<svg xmlns="http://www.w3.org/2000/svg"'
"""The beginning of a picture that slotwise has written."""

_FONT = "Helvetica Neue, Helvetica, Arial, Liberation Sans, DejaVu Sans, sans-serif"
_PARTS = (0.5, 0.6, 0.4, 0.7, 0.3, 0.8, 0.2)
"""The parts of a curve at which a label may be placed, best first."""

_LEGEND_ROW = 20.0
_LEGEND_WIDTH = 350.0


def svg_of(staged: StagedGraph) -> str:
    """Return the picture as SVG. All names from users are escaped."""
    drawing, channels = arrange(staged), staged.graph.channels
    kinds = [channel.kind for channel in channels] + ["file"] * len(staged.graph.written)
    return svg_of_drawing(drawing, kinds, list(_labels(staged, drawing)))


def svg_of_drawing(drawing: Drawing, kinds: Sequence[str], labels: Sequence[str] = ()) -> str:
    """Return a drawing as SVG; `kinds` are those of its edges, and `labels` drawn over them."""
    used = [kind for kind in KINDS if kind in kinds]
    legend = list(_legend(drawing, used))
    width = round(max(drawing.width + FRAME, _LEGEND_WIDTH + 2 * FRAME))
    height = round(drawing.height + FRAME * 3 + len(legend) / 2 * _LEGEND_ROW)
    paths = zip(drawing.paths, kinds, strict=True)
    lines = [
        f'{MARK} width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        f' font-family="{_FONT}" font-size="12">',
        f"<defs>{''.join(map(_arrow, used))}</defs>",
        _rect(Rect(0, 0, width, height), fill="white"),
        *(_frame(rect, "6 4", "none") for rect in drawing.bundles),
        *(_frame(rect, "", "#f5f7fa") for rect in drawing.groups),
        *(_line(_curves(points), kind) for points, kind in paths),
        *(_box(box) for box in drawing.boxes.values()),
        *labels,
        *legend,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def page_of(pictures: Sequence[tuple[str, str]], what: str = "Dataflow") -> str:
    """Return a page with pictures (heading, SVG), which works offline."""
    title = what if len(pictures) == 1 else f"{what}s"
    sections = (
        f'<section><h2>{escape(printable(name))}</h2><div class="picture">{svg}</div></section>'
        for name, svg in pictures
    )
    return "\n".join(
        [
            BEGIN,
            f"<title>{title}</title><style>{STYLE}{_dark_style()}</style></head><body><main>",
            f"<header><h1>{title}</h1></header>",
            *sections,
            "</main></body></html>\n",
        ]
    )


def _dark_style() -> str:
    rules = (
        f'svg [{what}="{light}"] {{ {what}: {dark}; }}'
        for light, dark in DARK_PAGE.items()
        for what in ("fill", "stroke")
    )
    return f"@media screen and (prefers-color-scheme: dark) {{ {' '.join(rules)} }}"


def _curves(points: Sequence[Point]) -> str:
    (x, y), *rest = points
    path = [f"M{x:.1f} {y:.1f}"]
    for at, (to_x, to_y) in enumerate(rest):
        end = to_y - 5 if at == len(rest) - 1 else to_y  # Where the arrowhead begins.
        half = (y + end) / 2
        path.append(f"C{x:.1f} {half:.1f} {to_x:.1f} {half:.1f} {to_x:.1f} {end:.1f}")
        x, y = to_x, to_y
    return " ".join(path)


def _line(path: str, kind: str) -> str:
    colour, dashes, width, _ = KINDS[kind]
    return (
        f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width}"'
        f'{_dashed(dashes)} marker-end="url(#{kind})"/>'
    )


def _labels(staged: StagedGraph, drawing: Drawing) -> Iterator[str]:
    """Labels on the last section of each edge, where they cover no box or other label."""
    taken = [box.place for box in drawing.boxes.values()]
    for points, channel in zip(drawing.paths, staged.graph.channels, strict=False):
        label = label_of(staged.graph, channel)
        if not label:
            continue
        width = len(label) * LETTER * 0.8
        middles = [curve(points[-2], points[-1], part) for part in _PARTS]
        tried = [Rect(x - width / 2, y - 6, width, 13) for x, y in middles]
        found = next((one for one in tried if not any(map(one.overlaps, taken))), tried[0])
        taken.append(found)
        yield _rect(found, fill="white", opacity=0.85)
        yield _text(found.middle, found.y + 10, label, KINDS[channel.kind][0], "middle", 10)


def _box(box: Box) -> str:
    middle, y = box.place.middle, box.place.y
    if box.is_file:
        frame = _rect(box.place, fill="white", stroke=INK, dashes="5 3")
    else:
        frame = _rect(box.place, fill="#e8f1f8", stroke=INK, rx=8)
    title = _text(middle, y + 18, box.title, INK, "middle", 12, "bold")
    return frame + title + _text(middle, y + 33, box.note, "#52606d", "middle", 11)


def _frame(rect: Rect, dashes: str, fill: str) -> str:
    return _rect(rect, fill=fill, stroke=MUTED, dashes=dashes, rx=6)


def _rect(
    rect: Rect,
    fill: str,
    stroke: str = "none",
    dashes: str = "",
    rx: int = 0,
    opacity: float = 1,
) -> str:
    return (
        f'<rect x="{rect.x:.1f}" y="{rect.y:.1f}" width="{rect.width:.1f}"'
        f' height="{rect.height:.1f}" rx="{rx}" fill="{fill}" fill-opacity="{opacity}"'
        f' stroke="{stroke}"{_dashed(dashes)}/>'
    )


def _dashed(dashes: str) -> str:
    return f' stroke-dasharray="{dashes}"' if dashes else ""


def _arrow(kind: str) -> str:
    return (
        f'<marker id="{kind}" viewBox="0 0 8 8" refX="2" refY="4" markerWidth="8"'
        ' markerHeight="8" orient="auto" markerUnits="userSpaceOnUse">'
        f'<path d="M0 0L8 4L0 8z" fill="{KINDS[kind][0]}"/></marker>'
    )


def _legend(drawing: Drawing, kinds: Sequence[str]) -> Iterator[str]:
    """A sample and its meaning for each kind of line and frame, one row below the other."""
    y = drawing.height + 2 * FRAME + 8
    frames = [("", "group: runs on one host")] if drawing.groups else []
    frames += [("6 4", "bundle: starts together")] if drawing.bundles else []
    for kind in kinds:
        yield _line(f"M{FRAME} {y:.1f}H{FRAME + 34}", kind)
        yield _text(FRAME + 52, y + 4, KINDS[kind][3], INK, "start", 11)
        y += _LEGEND_ROW
    for dashes, text in frames:
        yield _frame(Rect(FRAME, y - 7, 34, 14), dashes, "none")
        yield _text(FRAME + 52, y + 4, text, INK, "start", 11)
        y += _LEGEND_ROW


def _text(
    x: float, y: float, text: str, colour: str, anchor: str, size: int, weight: str = "normal"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}"'
        f' font-size="{size}" font-weight="{weight}">{escape(printable(text))}</text>'
    )
