"""DMRS, Figs 2 and 3: the jobs of section VI, gains, and a tiny figure from end to end."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from experiments import reproduce as reproducing
from experiments.dmrs import profiles
from experiments.dmrs.experiment import (
    DMRS,
    GB,
    MIXED,
    MORE_MIXED,
    NOISES,
    NOISY,
    OURS,
    RIVALS,
    SAME,
    Batch,
    Case,
    DmrsSetting,
    DmrsTotals,
    draw_jobs,
    experiment,
    with_elephants,
)
from experiments.dmrs.figure import DmrsFigure, row_of
from experiments.dmrs.figures import (
    DMRS_2A,
    DMRS_3,
    DMRS_ALL,
    DMRS_SETTINGS,
)
from experiments.dmrs.profiles import MB, Profile, measure, words
from experiments.dmrs.settings import SETTINGS
from experiments.reproduce import reproduce

ALL = (OURS, DMRS, *NOISES, *RIVALS)
NANO = Profile(map_seconds=3e-8, reduce_seconds=1e-8)
FEW = (Batch(3, GB, 256 * MB), Batch(2, GB // 2, 128 * MB))
SMALL = DmrsSetting(machines=4)

BENCHMARKS = [
    "wordcount",
    pytest.param("sort", marks=pytest.mark.slow),
    pytest.param("terasort", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(
    ("batches", "of_gb"),
    [
        (SAME, {1.0: (20, 16)}),
        (MIXED, {1.0: (12, 16), 0.5: (4, 16), 2.0: (4, 16)}),
        (MORE_MIXED, {1.0: (6, 16), 0.5: (6, 16), 2.0: (6, 16)}),
        (with_elephants(6), {2.0: (6, 32), 0.5: (12, 8)}),
        (with_elephants(0), {0.5: (18, 8)}),
    ],
)
def test_jobs_are_those_of_section_six(
    batches: tuple[Batch, ...], of_gb: dict[float, tuple[int, int]]
) -> None:
    """The numbers of jobs of each size and of their maps, and two groups of equal size."""
    for benchmark, reduces in (("wordcount", 1), ("sort", 4), ("terasort", 4)):
        jobs = draw_jobs(Case(benchmark, batches), NANO, np.random.default_rng(7))
        found: Counter[tuple[float, int]] = Counter()
        for job in jobs:
            maps, reducing = job.phases
            assert reducing.after == {"map"}
            assert reducing.tasks.count == reduces
            mapped, reduced = maps.tasks.work_total(), reducing.tasks.work_total()
            assert mapped is not None
            assert reduced == pytest.approx(mapped / 3)
            found[mapped / (3e-8 * GB), maps.tasks.count] += 1
        assert found == {(size, maps): count for size, (count, maps) in of_gb.items()}
        late = Counter(job.arrival for job in jobs)
        assert set(late.values()) == {len(jobs) // 2}
        assert min(late) == 0
        assert {job.weight for job in jobs} <= {1, 2, 3, 4, 5}


def test_the_second_group_arrives_when_the_setting_says() -> None:
    """20 GB of 4e-8 s a byte on machines of speed 40 in all take 21.5 s, a quarter is 5.4 s."""
    setting = DmrsSetting(machines=20, fast=0.5, ratio=3.0, interval=0.25)
    assert sum(host.speed for host in setting.cluster.hosts) == 40
    assert setting.seconds(NANO) == pytest.approx(20 * GB * 4e-8 / 40 / 4)
    jobs = draw_jobs(Case("sort", SAME, setting), NANO, np.random.default_rng(1))
    assert {job.arrival for job in jobs} == {0.0, setting.seconds(NANO)}


def test_cases_of_one_draw_differ_only_in_their_elephants() -> None:
    """With more elephants, weights and groups are the same, and elephants stay elephants."""
    few, more = (
        draw_jobs(Case("terasort", with_elephants(n)), NANO, np.random.default_rng(3))
        for n in (3, 6)
    )
    assert [j.weight for j in few] == [j.weight for j in more]
    assert [j.arrival for j in few] == [j.arrival for j in more]
    for one, other in zip(few, more, strict=True):
        assert (one.work or 0) <= (other.work or 0)


def test_all_schedulers_are_above_the_bound_and_ours_is_no_worse_than_dmrs() -> None:
    """The same numbers give the same experiment, other numbers another one."""
    case = Case("sort", FEW, SMALL)
    found = experiment(case, NANO, ALL, 0, 1)
    assert list(found.values) == list(ALL)
    for name in ALL:
        assert 0 < found.bounds[name] <= found.values[name] * (1 + 1e-9)
    assert len({found.bounds[name] for name in ALL if name not in NOISES}) == 1
    # What tasks really take differs with noise alone, and so does the bound.
    assert found.bounds[NOISY] != pytest.approx(found.bounds[DMRS], rel=1e-3)
    assert found.values[OURS] <= found.values[DMRS]
    assert experiment(case, NANO, ALL, 0, 1) == found
    assert experiment(case, NANO, ALL, 0, 2) != found
    # Nothing but the unit of time depends on the speed of this machine.
    slower = Profile(3e-7, 1e-7)
    scaled = experiment(case, slower, ALL, 0, 1)
    for name in (DMRS, OURS, *RIVALS):
        assert scaled.values[name] == pytest.approx(10 * found.values[name])
        assert scaled.bounds[name] == pytest.approx(10 * found.bounds[name])


def test_gains_are_computed_for_single_experiments() -> None:
    """DMRS 10 and 30 against 20 and 40: better by a half and a quarter, by 3/8 in the mean."""
    outcomes = [
        DmrsTotals({DMRS: mine, "fifo": other}, {DMRS: bound, "fifo": bound})
        for mine, other, bound in ((10.0, 20.0, 5.0), (30.0, 40.0, 20.0))
    ]
    row = row_of(Case("sort", MIXED), NANO, "fifo", outcomes)
    assert (row.gain, row.gain_least, row.gain_most) == (0.375, 0.25, 0.5)
    assert (row.twct, row.bound, row.large_jobs, row.experiments) == (30, 12.5, 4, 2)
    assert (row.over_bound, row.over_bound_least, row.over_bound_most) == (3, 2, 4)
    assert row.over_bound_deviation == pytest.approx(2**0.5)
    mine = row_of(Case("sort", MIXED), NANO, DMRS, outcomes)
    assert (mine.gain, mine.gain_least, mine.gain_most) == (0, 0, 0)


TINY = replace(
    DMRS_2A,
    name="tiny",
    cases=tuple(Case(name, FEW, SMALL) for name in ("wordcount", "sort")),
    profiles={"wordcount": Profile(9e-8, 3e-9), "sort": NANO},
)


@pytest.mark.slow
def test_a_figure_is_reproduced_as_a_table_and_pictures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A row for each benchmark and scheduler; the table has the profile as well."""
    monkeypatch.setattr(reproducing, "FIGURES", {"tiny": TINY})
    made = reproduce("tiny", runs=1, seed=1)
    assert [(row["benchmark"], row["scheduler"]) for row in made.rows] == [
        (benchmark, name) for benchmark in ("wordcount", "sort") for name in ALL
    ]
    header, *lines = made.write_table(tmp_path).read_text().splitlines()
    assert header.startswith("figure,benchmark,")
    assert header.endswith("map_seconds_per_byte,reduce_seconds_per_byte")
    assert len(lines) == len(made.rows)
    assert lines[-1].endswith("3e-08,1e-08")
    png, _ = made.write_pictures(tmp_path)
    assert png.read_bytes().startswith(b"\x89PNG")


def test_profiles_are_measured_before_the_experiments(monkeypatch: pytest.MonkeyPatch) -> None:
    """One measurement of each benchmark, counted separately by the progress."""
    asked = []

    def measured(benchmark: str) -> Profile:
        asked.append(benchmark)
        return NANO

    monkeypatch.setattr("experiments.dmrs.figure.measure", measured)
    monkeypatch.setattr(reproducing, "FIGURES", {"tiny": replace(TINY, profiles=None)})
    progress: list[tuple[int, int]] = []
    made = reproduce(
        "tiny", runs=1, progress=lambda done, total: progress.append((done, total))
    )
    assert asked == ["wordcount", "sort"]
    assert progress == [(1, 2), (2, 2)] * 2
    assert {row["map_seconds_per_byte"] for row in made.rows} == {3e-8}


SHOWN = [
    pytest.param(
        figure, id=figure.name, marks=[] if figure in (DMRS_2A, DMRS_3) else pytest.mark.slow
    )
    for figure in DMRS_ALL
]


@pytest.mark.parametrize("figure", SHOWN)
def test_every_figure_has_a_table_and_a_picture(figure: DmrsFigure) -> None:
    """Both have a place for each case, and the values of the paper."""
    profiles = dict.fromkeys(figure.benchmarks, NANO)
    figure = replace(figure, profiles=profiles)
    values = {name: 1.0 + place for place, name in enumerate(ALL)}
    outcome = DmrsTotals(values, dict.fromkeys(ALL, 1.0))
    rows = figure.rows([outcome] * len(figure.cases))
    assert len(rows) == len(figure.cases) * len(figure.schedulers)
    console = Console(width=200)
    with console.capture() as captured:
        console.print(figure.table(rows, 1))
    assert "up to 82 %" in captured.get()
    assert "30.0 and 10.0" in captured.get()
    picture = figure.draw(rows)
    assert "82 %" in str(picture.spec())


def test_the_sweep_contains_the_setting_of_the_other_figures() -> None:
    """The default is one of the settings, and neither the lowest nor the highest of them."""
    assert DmrsSetting() in SETTINGS
    assert {case.setting for case in DMRS_3.cases} == {DmrsSetting()}
    for name in ("machines", "fast", "ratio", "interval"):
        values = sorted({getattr(case.setting, name) for case in DMRS_SETTINGS.cases})
        assert values[0] < getattr(DmrsSetting(), name) < values[-1]


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_a_profile_is_measured_by_running_a_benchmark(benchmark: str) -> None:
    """With a tiny input, the rates are finite and above 0."""
    profile = measure(benchmark, task_bytes=100_000)
    assert 0 < profile.map_seconds < inf
    assert 0 < profile.reduce_seconds < inf


def test_words_of_a_text_have_the_frequencies_of_a_language(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has the given length; its first word is about twice as frequent as its second."""
    monkeypatch.setattr(profiles, "DRAWN", 100_000)
    text = "".join(words(1_000_000))
    assert len(text) == 1_000_000
    assert "".join(words(1_000_000)) == text
    counts = Counter(text.split())
    assert counts["a"] / counts["b"] == pytest.approx(2, rel=0.3)
    assert counts["a"] / counts["d"] == pytest.approx(4, rel=0.4)
    assert len(counts) > 10_000
