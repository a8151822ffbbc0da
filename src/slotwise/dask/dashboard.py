"""The page of the gate in Dask's dashboard, drawn with bokeh from a `GateStatus`.

Names come from users, so they are escaped in HTML.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from math import nan
from typing import Any

from bokeh.document import Document
from bokeh.layouts import column
from bokeh.models import (
    BasicTicker,
    ColumnDataSource,
    DataTable,
    Div,
    HTMLTemplateFormatter,
    NumberFormatter,
    Range1d,
    StringFormatter,
    TableColumn,
)
from bokeh.plotting import figure
from distributed.dashboard.components.scheduler import BOKEH_THEME, env

from slotwise.dask.status import GateStatus, PoolSample, PoolShare, memory_table, time_until
from slotwise.insight.report.grid import grid_html
from slotwise.insight.report.text import (
    BAD,
    BEST,
    INK,
    MUTED,
    POOLS,
    counted,
    cycle,
    number,
    seconds,
)

REFRESH_MILLISECONDS = 1_000

POOLS_DRAWN = 12
"""The number of pools with a picture."""

NO_SHARE = PoolShare(0.0, 0.0, 0)

PROGRESS = f"""
<div style="position:relative;background:#e4e7eb;border-radius:4px;height:12px;margin-top:4px">
<div style="background:{BEST};border-radius:4px;height:12px;width:<%= value %>%"></div></div>
"""

SECONDS = "<%= value.toFixed(1) %> s"

LEGEND = (
    f'<span style="color:{POOLS[0]}">■</span> used&ensp;'
    f'<span style="color:{INK}"><b>―</b></span> entitled&ensp;'
    f'<span style="color:{BAD}"><b>┄</b></span> guaranteed (min share)'
)

COLUMNS = (
    ("name", "computation", 110, StringFormatter()),
    ("pool", "pool", 70, StringFormatter()),
    ("state", "state", 70, StringFormatter()),
    ("seconds", "time since arrival", 120, HTMLTemplateFormatter(template=SECONDS)),
    ("progress", "progress", 120, HTMLTemplateFormatter(template=PROGRESS)),
    ("tasks", "tasks done", 90, StringFormatter()),
    ("running", "slots held", 80, StringFormatter()),
    ("entitled", "slots entitled", 100, NumberFormatter(format="0,0.0")),
    ("starts", "starts in", 80, StringFormatter()),
    ("ends", "ends in", 80, StringFormatter()),
    ("reason", "why it does not hold more", 440, StringFormatter()),
)
"""Field, title, least width in pixels and format of each column."""

CHARACTER = 7
"""The pixels of a character in a table, rounded up."""

IN_SECONDS = frozenset({"response", "tardiness", "lateness", "makespan"})
"""The penalties whose costs are times."""


class PoolPictures:
    """A picture for each pool: its recently used, entitled and guaranteed slots."""

    def __init__(self, height: int = 140) -> None:
        self.root = column(sizing_mode="stretch_width")
        self._height = height
        self._sources: dict[str, ColumnDataSource] = {}
        self._seconds, self._slots = Range1d(-60, 0), Range1d(0, 1)

    def update(self, status: GateStatus) -> None:
        """Draw the pools of a status."""
        names = list(status.pools)[:POOLS_DRAWN]
        if names != list(self._sources):
            self._sources = {name: ColumnDataSource() for name in names}
            for name in names:
                self._sources[name].data = _steps(name, status.samples, status.now)
            colours = cycle(names, POOLS)
            self.root.children = [self._picture(name, colours[name]) for name in names]
            for picture in self.root.children[-1:]:
                picture.xaxis.axis_label = "seconds from now"
        for name, source in self._sources.items():
            source.data = _steps(name, status.samples, status.now)
        if status.samples:
            self._seconds.start = min(-60.0, status.samples[0].at - status.now)
            shares = [share for sample in status.samples for share in sample.pools.values()]
            most = [max(one.used, one.entitled, one.guaranteed) for one in shares]
            self._slots.end = 1.1 * max([1.0, *most])

    def _picture(self, name: str, colour: str) -> Any:
        picture = figure(
            title=name,
            height=self._height,
            sizing_mode="stretch_width",
            x_range=self._seconds,
            y_range=self._slots,
            y_axis_label="slots",
            tools="",
            toolbar_location=None,
        )
        source = self._sources[name]
        picture.varea(x="at", y1=0, y2="used", color=colour, alpha=0.6, source=source)
        picture.line(x="at", y="entitled", color=INK, line_width=1.5, source=source)
        picture.line(
            x="at", y="guaranteed", color=BAD, line_dash="dashed", line_width=1.5, source=source
        )
        picture.yaxis.ticker = BasicTicker(desired_num_ticks=3, min_interval=1)
        picture.title.text_color = INK
        picture.grid.grid_line_alpha = 0.5
        return picture


def slotwise_doc(scheduler: Any, extra: dict[str, Any], doc: Document) -> None:
    """The page: facts, the pools over time, computations, and the memory of workers."""
    facts = Div(sizing_mode="stretch_width", styles={"font-size": "15px", "color": INK})
    pools = PoolPictures()
    memory = Div(sizing_mode="stretch_width")
    rows = ColumnDataSource(_rows([], 0.0))
    table = DataTable(
        source=rows,
        columns=[
            TableColumn(field=field, title=title, width=width, formatter=formatter.clone())
            for field, title, width, formatter in COLUMNS
        ],
        index_position=None,
        autosize_mode="none",  # Where the page is narrow, the table scrolls within itself.
        sizing_mode="stretch_width",
        height=420,
    )

    def update(status: GateStatus) -> None:
        facts.text = _facts(status)
        pools.update(status)
        memory.text = grid_html(memory_table(status.workers)) if status.workers else ""
        rows.data = _rows(status.computations, status.now)
        for one in table.columns:
            one.width = max(one.width, _width(rows.data[one.field]))

    _show(scheduler, doc, update, facts)
    doc.add_root(column(facts, pools.root, table, memory, sizing_mode="stretch_width"))
    doc.title = "Dask: slotwise"
    doc.template = env.get_template("simple.html")
    doc.template_variables.update(extra)


def slotwise_pools_doc(scheduler: Any, extra: dict[str, Any], doc: Document) -> None:
    """The pools alone, for the menu and for Jupyter, like the other plots of Dask."""
    facts, pools = Div(text=LEGEND), PoolPictures(height=180)
    _show(scheduler, doc, pools.update, facts)
    doc.add_root(column(facts, pools.root, sizing_mode="stretch_width"))
    doc.title = "Dask: Slotwise Pools"


PAGES = {"/slotwise": slotwise_doc, "/individual-slotwise": slotwise_pools_doc}
"""The pages by their paths in the dashboard."""


def _show(
    scheduler: Any, doc: Document, update: Callable[[GateStatus], None], facts: Div
) -> None:
    """Call `update` now and periodically; show a message if there is no gate."""

    def refresh() -> None:
        gate = scheduler.plugins.get("slotwise")
        if gate is None:
            facts.text = "This scheduler has no gate now: Dask runs all tasks without it."
        else:
            update(gate.status(forecasts=True))

    refresh()
    doc.add_periodic_callback(refresh, REFRESH_MILLISECONDS)
    doc.theme = BOKEH_THEME


def _width(cells: Sequence[Any]) -> int:
    """The pixels that the longest text of a column needs."""
    return max(
        (CHARACTER * len(cell) + 16 for cell in cells if isinstance(cell, str)), default=0
    )


def _facts(status: GateStatus) -> str:
    gate = f"<b>slotwise</b>: scheduler {escape(status.scheduler)}"
    gate += f", objective {escape(status.objective)}"
    if status.is_open:
        gate = f'<b style="color:{BAD}">The gate is open: Dask runs all tasks without it.</b>'
    more = f" Not listed: {counted(status.more, 'more computation')}." if status.more else ""
    show = seconds if status.objective.rpartition(" ")[2] in IN_SECONDS else number
    return (
        f"<p>{gate}. {status.used:,} of {counted(status.slots, 'slot')} used,"
        f" {counted(status.held, 'task')} held. {counted(status.completed, 'computation')}"
        f" completed with value {show(status.value)}; lower bound"
        f" {show(status.lower_bound)}.{more} <code>slotwise.dask.page(client)</code> returns a"
        " link to the live page, with the task in each slot.</p>"
        f'<p style="color:{MUTED}">{LEGEND}</p>'
    )


def _steps(name: str, samples: Sequence[PoolSample], now: float) -> dict[str, list[float]]:
    """The share of a pool, constant from each sample to the next; times relative to now."""
    data: dict[str, list[float]] = {"at": [], "used": [], "entitled": [], "guaranteed": []}
    ends = [*[sample.at for sample in samples[1:]], now]
    for sample, end in zip(samples, ends, strict=True):
        share = sample.pools.get(name, NO_SHARE)
        data["at"] += [sample.at - now, end - now]
        data["used"] += [share.used] * 2
        data["entitled"] += [share.entitled] * 2
        data["guaranteed"] += [share.guaranteed or nan] * 2  # No line without a min share.
    return data


def _rows(computations: Sequence[Any], now: float) -> dict[str, list[Any]]:
    data: dict[str, list[Any]] = {
        field: [getattr(one, field) for one in computations]
        for field in ("name", "pool", "state", "seconds", "running", "entitled", "reason")
    }
    data["progress"] = [100 * one.done / max(1, one.tasks) for one in computations]
    data["tasks"] = [f"{one.done:,}/{one.tasks:,}" for one in computations]
    data["starts"] = [time_until(one.starts, now) for one in computations]
    data["ends"] = [time_until(one.ends, now) for one in computations]
    return data
