"""Slots held over time, stacked by job, and by pool if there are several pools."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import altair as alt

from slotwise.core.pools import PoolTree
from slotwise.core.resources import MEMORY, UNIT
from slotwise.insight.present_hosts import SlotsOverTime
from slotwise.insight.report.pictures.picture import (
    COLUMNS,
    WIDTH,
    Picture,
    Rows,
    coloured,
    job_colour,
    label_axis,
    legend,
    palette,
    source,
    time_axis,
    tooltip,
    under_each_other,
)
from slotwise.insight.report.reported import Scene
from slotwise.insight.report.text import INK
from slotwise.insight.timeline import ResourceOverTime, StepFunction
from slotwise.policy.steady import steady_shares


def draw_by_job(scene: Scene) -> Picture:
    """Draw the slots that each job held."""
    rows: dict[str, Rows] = {}
    charts = []
    for number, line in enumerate(scene.timelines):
        held = {job: line.held_by_job[job] for job in scene.jobs if job in line.held_by_job}
        rows[f"held{number}"] = [
            coloured(scene, job) | area for job, area in _stacked(scene, held)
        ]
        rows[f"capacity{number}"] = _capacity(scene, line.slots)
        tips = tooltip(job="job")
        charts.append(_areas(scene, number, job_colour(scene), "job", tips))
    sentence = (
        "The height of a colour is the number of slots that its job held. The dashed line is"
        " the total number of slots."
    )
    chart = under_each_other(scene, charts)
    return Picture("held-by-job", "Slots held by each job", sentence, chart, rows)


def _steady(scene: Scene) -> str:
    """A sentence on the shares of pools if all had work, for slots of one kind."""
    header = scene.runs[0].log.header
    kind, *others = header.cluster.capacity
    if others:
        return ""
    tree = PoolTree(header.pools)
    tree = tree.with_pools(name for name in scene.pool_colours if name not in tree.inner)
    steady = steady_shares(tree, header.cluster.capacity[kind], kind, header.cluster)
    shares = {
        key.pool: share for key, share in steady.items() if key.pool in scene.pool_colours
    }
    listed = ", ".join(f"{pool} {share:.3g}" for pool, share in shares.items())
    return f" If all pools had work, their shares under fair would be: {listed}."


def draw_by_pool(scene: Scene) -> Picture:
    """Draw the slots that the jobs of each pool held together."""
    rows: dict[str, Rows] = {}
    charts = []
    colour = alt.Color(
        field="pool",
        type="nominal",
        legend=legend("pool", symbolType="square"),
        scale=palette(scene.pool_colours),
    )
    for number, line in enumerate(scene.timelines):
        rows[f"held{number}"] = [
            {"pool": pool} | area for pool, area in _stacked(scene, line.held_by_pool)
        ]
        rows[f"capacity{number}"] = _capacity(scene, line.slots)
        charts.append(_areas(scene, number, colour, "pool", tooltip(pool="pool")))
    sentence = "The height of a colour is the number of slots that the jobs of its pool held."
    if scene.runs:
        sentence += _steady(scene)
    chart = under_each_other(scene, charts)
    return Picture("held-by-pool", "Slots held by each pool", sentence, chart, rows)


def draw_resources(scene: Scene) -> list[Picture]:
    """Draw what the tasks of each job requested of each resource beside slots."""
    names = {name for line in scene.timelines for name in line.resources}
    return [_draw_resource(scene, name) for name in sorted(names)]


def _draw_resource(scene: Scene, name: str) -> Picture:
    rows: dict[str, Rows] = {}
    charts = []
    nothing = ResourceOverTime(SlotsOverTime(0), {})
    lines = [line.resources.get(name, nothing) for line in scene.timelines]
    power = max((one.total.most.bit_length() - 1) // 10 for one in lines)
    power = min(4, max(0, power))
    unit, title = UNIT, name
    if name == MEMORY:
        unit, title = 1024**power, ("bytes", "KiB", "MiB", "GiB", "TiB")[power]
    for number, one in enumerate(lines):
        held = {job: one.held_by_job[job] for job in scene.jobs if job in one.held_by_job}
        held = {
            job: StepFunction(steps.times, [value / unit for value in steps.values])
            for job, steps in held.items()
        }
        rows[f"held{number}"] = [
            coloured(scene, job) | area for job, area in _stacked(scene, held)
        ]
        rows[f"capacity{number}"] = _capacity(scene, one.total, unit)
        rows[f"used{number}"] = _line(scene, one.used, unit)
        top = one.total.most / unit
        tips = tooltip(job="job")
        charts.append(_areas(scene, number, job_colour(scene), "job", tips, title, top))
    sentence = (
        f"The height of a colour is the {name} that the running tasks of its job requested. The"
        " dashed line is what the hosts have; what lies between is free."
    )
    if any(one.used.times for one in lines):
        sentence += (
            " The solid line is the sum of the peaks of all running tasks: the most that they"
            " can have used."
        )
    chart = under_each_other(scene, charts)
    file = f"requested-{re.sub('[^A-Za-z0-9]', '-', name)}"
    return Picture(file, f"Requested {name}", sentence, chart, rows)


def _capacity(scene: Scene, slots: SlotsOverTime, unit: int = 1) -> Rows:
    """Intervals with a constant number of slots, or an amount in these units."""
    return [
        {
            "slots": count if unit == 1 else count / unit,
            "start": scene.at(start),
            "end": scene.at(end),
        }
        for start, end, count in slots.between(scene.begin, scene.end)
    ]


def _line(scene: Scene, steps: StepFunction, unit: int) -> Rows:
    """A step function in these units, without the gaps between one task and the next."""
    if not steps.times:
        return []
    edges = _grid(scene)
    found = [round(mean / unit, 2) for mean in steps.means(edges)]
    rows: Rows = []
    for place, value in enumerate(found):
        if not place or value != found[place - 1]:
            rows.append({"time": scene.at(edges[place]), "used": value})
    return [*rows, {"time": scene.at(edges[-1]), "used": found[-1]}]


def _areas(
    scene: Scene,
    number: int,
    colour: alt.Color,
    owner: str,
    tips: Any,
    title: str = "slots",
    top: float | None = None,
) -> Any:
    capacity = max(1, scene.timelines[number].slots.most) if top is None else top or 1.0
    ticks = {"tickCount": min(4, capacity), "format": "d"} if top is None else {"tickCount": 4}
    y = alt.Y(
        field="low",
        type="quantitative",
        title=title,
        scale=alt.Scale(domain=[0, 1.06 * capacity], nice=False),
        axis=label_axis(**ticks, titleX=-45),
    )
    is_last = number == len(scene.runs) - 1
    areas = (
        alt.Chart(source(f"held{number}"))
        .mark_area(interpolate="step-after", strokeWidth=0, fillOpacity=1)
        .encode(
            x=time_axis(scene, "time", is_last),
            y=y,
            y2="high",
            color=colour,
            detail=alt.Detail(field=owner, type="nominal"),
            tooltip=tips,
        )
    )
    dashes = (
        alt.Chart(source(f"capacity{number}"))
        .mark_rule(color=INK, strokeDash=[4, 3], strokeWidth=1)
        .encode(
            x=time_axis(scene, "start", is_last),
            x2="end",
            y=alt.Y(field="slots", type="quantitative"),
        )
    )
    used = (
        alt.Chart(source(f"used{number}"))
        .mark_line(color=INK, interpolate="step-after", strokeWidth=1.2)
        .encode(x=time_axis(scene, "time", is_last), y=alt.Y(field="used", type="quantitative"))
    )
    layers = [areas, dashes] if top is None else [areas, dashes, used]
    return alt.layer(*layers).properties(width=WIDTH, height=120)


def _stacked(
    scene: Scene, held: Mapping[str, StepFunction]
) -> list[tuple[str, dict[str, float]]]:
    """The lower and upper edges of each owner's area, while it holds slots."""
    edges = _edges(scene, held)
    floor = [0.0] * (len(edges) - 1)
    areas = []
    for owner, steps in held.items():
        means = steps.means(edges)
        busy = [place for place, mean in enumerate(means) if mean > 0]
        if not busy:
            continue
        before = (0.0, 0.0)
        for place in range(busy[0], busy[-1] + 1):
            low, floor[place] = floor[place], floor[place] + means[place]
            if (low, floor[place]) != before:
                areas.append((owner, _edge(scene, edges[place], low, floor[place])))
            before = (low, floor[place])
        last = busy[-1]
        closing = _edge(scene, edges[last + 1], floor[last] - means[last], floor[last])
        areas.append((owner, closing))
    return areas


def _edge(scene: Scene, time: float, low: float, high: float) -> dict[str, float]:
    return {"time": scene.at(time), "low": round(low, 2), "high": round(high, 2)}


def _edges(scene: Scene, held: Mapping[str, StepFunction]) -> list[float]:
    """All instants of change if they are few, else an even grid."""
    times: set[float] = set()
    for steps in held.values():
        times.update(steps.times[: COLUMNS + 1])
        if len(times) > COLUMNS:
            break
    else:
        return sorted(times | {scene.begin, scene.end})
    return _grid(scene)


def _grid(scene: Scene) -> list[float]:
    width = (scene.end - scene.begin) / COLUMNS
    return [scene.begin + column * width for column in range(COLUMNS)] + [scene.end]
