"""Delay scheduling, the figures of the slides: locality and throughput (Zaharia and others).

By job size, by the number of jobs that share the cluster, by type of job; traffic is in
`traffic`. The slides state no numbers except the table of locality gains and one gain in
throughput, and of the hardware only the number of nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from experiments.figure import Figure
from experiments.slides import levels, miniature
from experiments.slides.cluster import (
    COPIES,
    HEARTBEAT,
    HOSTS,
    MAP_SECONDS,
    MAP_SLOTS,
    NETWORK,
    WAITS,
    JobType,
    Trial,
)
from experiments.slides.delay_analysis import locality_of_job, locality_of_launch
from experiments.slides.figure import (
    WITH,
    WITHOUT,
    SlidesFigure,
    SlidesPoint,
    SlidesRow,
    percent,
)
from experiments.slides.traffic import SLIDES_TRAFFIC
from slotwise.insight.report.text import MISSING

if TYPE_CHECKING:
    from slotwise.insight.report.pictures.picture import Picture

SCHEMES = {
    f"FIFO, {WITHOUT}": ("fifo", None),
    f"FAIR, {WITHOUT}": ("fair", None),
    f"FIFO, {WITH}": ("fifo", WAITS),
    f"FAIR, {WITH}": ("fair", WAITS),
}
"""The policy of sharing, and the waits."""

SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)
"""Maps of a job."""

CROWD = JobType("crowd", maps=20, users=30, pool="crowd", reads=False)
"""Other users' jobs: they fill all remaining slots, on any host."""

JOBS = (1, 2, 3, 5, 10, 15, 20, 30, 40, 50)
"""Jobs that share the cluster."""

MAPS_OF_ALL_JOBS = 2_000
"""Maps of the jobs that share the cluster, together: ten for each slot."""

TYPES = (
    JobType("small sort", maps=1, users=10, reduces=1, pool="small sorts"),
    JobType("small scan", maps=1, users=10, pool="small scans"),
    JobType("medium scan", maps=30, users=6, pool="medium scans"),
    JobType("large scan", maps=400, users=3, pool="large scans"),
)
"""Sizes inferred from the slides' localities without waiting: see EXPERIMENTS.md."""

GAINS = {
    "small sort": ((0.02, 0.50), (0.81, 0.96)),
    "small scan": ((0.02, 0.50), (0.75, 0.94)),
    "medium scan": ((0.37, 0.98), (0.99, 0.99)),
    "large scan": ((0.84, 0.99), (0.94, 0.99)),
}
"""The slides' table: localities at the node and in the rack, without waiting and with."""


COMPUTING = (4.0, 8.0, 12.0, 16.0, 24.0, 32.0)
"""Seconds that a map computes."""

ALONE = {
    "small scan": (1, 220, 150.0),
    "medium scan": (30, 20, 600.0),
    "large scan": (400, 3, 1_200.0),
}
"""Maps of a job, the number of users that keeps all slots busy without others, and the seconds
of observation."""


def expected_by_size(maps: int, waits: tuple[float, float] | None) -> float:
    """The locality of a job of this number of maps by the analysis, for the first wait's skips.

    Without a wait a job takes the first slot that it is offered, so it has one offer. With a
    wait its offers are the slots that become free in that time, and a slot at its end.
    """
    turnaround = MAP_SECONDS + HEARTBEAT / 2
    skips = waits[0] * HOSTS * MAP_SLOTS / turnaround if waits else 0.0
    return locality_of_job(maps, skips + 1, HOSTS, COPIES)


def expected_when_sticky(jobs: int) -> float:
    """The fraction of a job's blocks on its nodes, if it always keeps its slots.

    Its slots are on a fraction f = 1 - (1 - 1/k)^L of the nodes, and 1 - (1 - f)^R of all
    blocks have a copy there.
    """
    nodes = HOSTS * locality_of_launch(1 / jobs, MAP_SLOTS)
    return 1.0 - (1.0 - nodes / HOSTS) ** COPIES


def _by_size(maps: int, scheme: str) -> SlidesPoint:
    sharing, waits = SCHEMES[scheme]
    job = JobType("job", maps, users=max(1, min(10, HOSTS // maps)), pool="observed")
    trial = Trial((CROWD, job), sharing, waits, seconds=800.0)
    return SlidesPoint(maps, scheme, trial, "job", expected_by_size(maps, waits))


def _by_jobs(jobs: int, scheme: str) -> SlidesPoint:
    job = JobType("job", MAPS_OF_ALL_JOBS // jobs, users=jobs)
    trial = Trial((job,), "fair", _waits(scheme), seconds=1_200.0)
    expected = expected_when_sticky(jobs) if scheme == WITHOUT else None
    return SlidesPoint(jobs, scheme, trial, "job", expected)


def _in_miniature(maps: int, scheme: str) -> SlidesPoint:
    sharing, waits = SCHEMES[scheme]
    waits = waits and miniature.WAITS
    trial = miniature.trial_of(maps, sharing, waits)
    return SlidesPoint(maps, scheme, trial, "job", miniature.expected_locality(maps, waits))


def _of_type(kind: JobType, scheme: str) -> SlidesPoint:
    trial = Trial(TYPES, "fair", _waits(scheme), seconds=1_600.0, network=NETWORK)
    return SlidesPoint(
        kind.name, scheme, trial, kind.name, published=GAINS[kind.name][scheme == WITH]
    )


def _alone(name: str, seconds: float, scheme: str) -> SlidesPoint:
    maps, users, observed = ALONE[name]
    kind = JobType(name, maps, users, map_seconds=seconds)
    trial = Trial((kind,), "fair", _waits(scheme), observed, warm_up=100.0, network=NETWORK)
    return SlidesPoint(seconds, scheme, trial, name)


def _waits(scheme: str) -> tuple[float, float] | None:
    return WAITS if scheme == WITH else None


def _localities(figure: SlidesFigure, rows: Sequence[SlidesRow]) -> Table:
    """Locality at the node, a column for each scheme, with the values of the formulas."""
    table = Table()
    table.add_column(figure.axis, vertical="bottom")
    schemes = list(dict.fromkeys(row.scheme for row in rows))
    for scheme in schemes:
        table.add_column(scheme.replace(", ", "\n"), justify="right")
    shown = [s for s in schemes if any(r.scheme == s and r.expected_node for r in rows)]
    for wait in dict.fromkeys(scheme.split(", ")[-1] for scheme in shown):
        table.add_column(f"by the formula,\n{wait}", justify="right")
    found = {(row.x, row.scheme): row for row in rows}
    for x in dict.fromkeys(row.x for row in rows):
        of_wait = {s.split(", ")[-1]: found[x, s].expected_node for s in shown}
        cells = [percent(found[x, scheme].node) for scheme in schemes]
        table.add_row(f"{x:,}", *cells, *map(percent, of_wait.values()))
    return table


def _gains(figure: SlidesFigure, rows: Sequence[SlidesRow]) -> Table:
    """Both localities of each type of job, ours and the slides'."""
    table = Table()
    table.add_column(figure.axis, vertical="bottom")
    for scheme in (WITHOUT, WITH):
        for whose in ("ours", "slides"):
            table.add_column(f"{scheme}\n{whose}", justify="right")
    found = {(row.x, row.scheme): row for row in rows}
    for kind in TYPES:
        cells = []
        for row in (found[kind.name, scheme] for scheme in (WITHOUT, WITH)):
            cells += [_pair(row.node, row.rack), _pair(row.slides_node, row.slides_rack)]
        table.add_row(kind.name, *cells)
    return table


def _throughputs(figure: SlidesFigure, rows: Sequence[SlidesRow]) -> Table:
    """Maps a second of each type, without and with waiting, and the gain."""
    table = Table()
    table.add_column(figure.axis, vertical="bottom")
    for name in ALONE:
        table.add_column(f"{name}\nmaps a second", justify="right")
        table.add_column("gain", justify="right", vertical="bottom")
    found = {(row.x, row.type, row.scheme): row.maps_per_second for row in rows}
    for x in dict.fromkeys(row.x for row in rows):
        cells = []
        for name in ALONE:
            one, other = (found[x, name, scheme] for scheme in (WITHOUT, WITH))
            cells += [f"{one:.1f} {other:>5.1f}", f"{round(100 * (other / one - 1)):+d} %"]
        table.add_row(f"{x:g}", *cells)
    return table


def _pair(node: float | None, rack: float | None) -> str:
    if node is None or rack is None:
        return MISSING
    return f"{100 * node:.0f} / {100 * rack:.0f} %"


def _draw_lines(figure: SlidesFigure, rows: Sequence[SlidesRow]) -> Picture:
    from experiments.slides.pictures import draw_localities

    return draw_localities(figure, rows)


def _draw_gains(figure: SlidesFigure, rows: Sequence[SlidesRow]) -> Picture:
    from experiments.slides.pictures import draw_gains

    return draw_gains(figure, rows)


def _draw_throughputs(figure: SlidesFigure, rows: Sequence[SlidesRow]) -> Picture:
    from experiments.slides.pictures import draw_throughputs

    return draw_throughputs(figure, rows)


SLIDES_LOCALITY = SlidesFigure(
    "slides-locality",
    "Locality by the size of a job, in a busy cluster of 100 nodes",
    "maps of the job",
    tuple(_by_size(maps, scheme) for maps in SIZES for scheme in SCHEMES),
    _localities,
    _draw_lines,
)
SLIDES_LOCALITY_ON_DASK = SlidesFigure(
    "slides-locality-dask",
    "Locality by the size of a job, live on a busy Dask cluster of 4 hosts with MooseFS",
    SLIDES_LOCALITY.axis,
    tuple(_in_miniature(maps, scheme) for maps in miniature.SIZES for scheme in SCHEMES),
    _localities,
    _draw_lines,
    runs=2,
    observing=miniature.observe_on_moosefs,
)
SLIDES_STICKY = SlidesFigure(
    "slides-sticky",
    "Locality by the number of jobs that share 100 nodes fairly",
    "concurrent jobs",
    tuple(_by_jobs(jobs, scheme) for jobs in JOBS for scheme in (WITHOUT, WITH)),
    _localities,
    _draw_lines,
)
SLIDES_GAINS = SlidesFigure(
    "slides-gains",
    "Locality of each type of job, node / rack, in a shared cluster of 100 nodes",
    "type of job",
    tuple(_of_type(kind, scheme) for kind in TYPES for scheme in (WITHOUT, WITH)),
    _gains,
    _draw_gains,
)
SLIDES_THROUGHPUT = SlidesFigure(
    "slides-throughput",
    "Throughput without and with waiting, by the computing time of a map",
    "seconds that a map computes",
    tuple(
        _alone(name, seconds, scheme)
        for seconds in COMPUTING
        for name in ALONE
        for scheme in (WITHOUT, WITH)
    ),
    _throughputs,
    _draw_throughputs,
    runs=2,
)

SLIDES_LEVELS = SlidesFigure(
    "slides-levels",
    "Levels of locality that persist or restart, in a shared cluster of 100 nodes",
    "type of job",
    levels.levels_points(TYPES, CROWD),
    levels.levels_table,
    levels.draw_levels,
)
SLIDES_ANALYSIS = SlidesFigure(
    "slides-analysis",
    "Locality of jobs of 20 tasks on 100 nodes, by the skips that the wait is worth",
    "skips",
    levels.analysis_points(),
    _localities,
    _draw_lines,
    observing=levels.observe_analysis,
)

SLIDES: tuple[Figure, ...] = (
    SLIDES_LOCALITY,
    SLIDES_STICKY,
    SLIDES_GAINS,
    SLIDES_THROUGHPUT,
    SLIDES_TRAFFIC,
    SLIDES_LEVELS,
    SLIDES_ANALYSIS,
)
