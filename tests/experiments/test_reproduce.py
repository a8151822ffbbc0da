"""Figures by name: their rows, their files, and the command that makes them."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from experiments import __main__ as command
from experiments import reproduce as reproducing
from experiments import reproduction
from experiments.__main__ import app
from experiments.flex.experiment import FlexSetting, SchemeValues
from experiments.flex.figures import FLEX_5, FLEX_5A, FLEX_TASKS
from experiments.ratios import BEST_ORDER, BOUND, Point, RatioFigure, rows_of
from experiments.reproduce import FIGURES, reproduce
from slotwise.core.errors import InputError, MissingExtraError
from slotwise.workload.generators import FlexGenerator

COLUMNS = [
    "figure", "x", "scheme", "yardstick",
    "mean", "worst", "least", "deviation", "counted", "ignored", "proven",
]  # fmt: skip

Invoke = Callable[..., Result]


@pytest.fixture
def figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Runs the command in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(app, list(arguments))

    return invoke


TINY = RatioFigure(
    "tiny",
    "Mean response of three jobs",
    "jobs",
    (
        Point(3, FlexSetting(FlexGenerator(jobs=3))),
        Point(4, FlexSetting(FlexGenerator(jobs=4))),
    ),
    FLEX_5A.drawing,
)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a figure of few jobs, for the behaviour that all figures share."""
    monkeypatch.setattr(reproducing, "FIGURES", {"tiny": TINY})
    monkeypatch.setattr(command, "FIGURES", {"tiny": TINY})
    return "tiny"


SHOWN = [
    pytest.param(figure, id=figure.name, marks=[] if figure is FLEX_TASKS else pytest.mark.slow)
    for figure in FLEX_5
]


@pytest.mark.parametrize("figure", SHOWN)
def test_a_figure_of_ratios_is_reproduced_as_a_table_and_pictures(
    figures: Invoke,
    figure: RatioFigure,
    pytestconfig: pytest.Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The files are where the command says, and contain what the figure shows.

    All points twice with --slow, else the first and the last once.
    """
    name, runs = figure.name, 2
    if not pytestconfig.getoption("--slow"):
        figure, runs = replace(figure, points=figure.points[:: len(figure.points) - 1]), 1
        monkeypatch.setattr(reproducing, "FIGURES", {name: figure})
    done = figures(name, "--runs", str(runs), "--processes", "1", "-o", "some/figures")
    assert done.exit_code == 0, done.stderr
    folder = Path("some") / "figures"
    files = [folder / f"{name}.{ending}" for ending in ("csv", "png", "svg")]
    assert done.stdout.splitlines()[-3:] == list(map(str, files))
    assert files[1].read_bytes().startswith(b"\x89PNG")
    assert files[2].read_text(encoding="utf-8").startswith("<svg")
    with files[0].open(newline="") as file:
        reader = csv.DictReader(file)
        rows = list(reader)
    assert reader.fieldnames == COLUMNS
    points = [str(point.x) for point in figure.points]
    assert list(dict.fromkeys(row["x"] for row in rows)) == points
    assert len(rows) == len(points) * 3 * 2
    for row in rows:
        assert int(row["counted"]) + int(row["ignored"]) == runs
        if row["mean"]:
            assert float(row["least"]) <= float(row["mean"]) <= float(row["worst"])
            if row["yardstick"] == BOUND and row["scheme"] != "fifo":
                assert float(row["least"]) >= 1 - 1e-6


def test_json_is_one_object(figures: Invoke, tiny: str) -> None:
    """The object holds the rows and the files; nothing else is on stdout."""
    done = figures(tiny, "--runs", "1", "--processes", "1", "--json")
    assert done.exit_code == 0, done.stderr
    printed = json.loads(done.stdout)
    assert printed["figure"] == "tiny"
    assert [printed["runs"], printed["seed"]] == [1, 0]
    assert set(printed["rows"][0]) == set(COLUMNS) - {"figure"}
    assert all(Path(path).exists() for path in printed["files"])
    assert Path(printed["files"][0]) == Path("out/figures/tiny.csv")


def test_without_a_name_all_figures_are_reproduced(figures: Invoke, tiny: str) -> None:
    """The table of each is in the folder."""
    done = figures("--runs", "1", "--processes", "1")
    assert done.exit_code == 0, done.stderr
    assert Path("out/figures/tiny.csv").exists()


def test_progress_is_reported_after_every_experiment(tiny: str) -> None:
    """Progress counts up to all experiments of all points."""
    progress: list[tuple[int, int]] = []
    reproduce(tiny, runs=2, progress=lambda done, total: progress.append((done, total)))
    assert progress == [(done, 4) for done in range(1, 5)]


def outcome(best_order: float, bound: float) -> SchemeValues:
    """FIFO 6, FAIR 4, FLEX 2."""
    return SchemeValues(6.0, 4.0, 2.0, best_order, bound)


def test_experiments_without_a_sensible_ratio_are_ignored_and_counted() -> None:
    """Where a yardstick is 0 or below, its ratio is ignored, each separately (FLEX 4.1)."""
    outcomes = [outcome(2.0, 2.0), outcome(1.0, 0.0), outcome(-1.0, -3.0)]
    rows = {(r.scheme, r.yardstick): r for r in rows_of(Point(1, FlexSetting()), outcomes)}
    fifo = rows["fifo", BEST_ORDER]
    assert (fifo.mean, fifo.worst, fifo.least) == (4.5, 6.0, 3.0)
    assert (fifo.counted, fifo.ignored) == (2, 1)
    assert fifo.deviation == pytest.approx(3 / 2**0.5)
    by_bound = rows["fair", BOUND]
    assert (by_bound.mean, by_bound.worst, by_bound.counted) == (2.0, 2.0, 1)
    assert (by_bound.deviation, by_bound.ignored, by_bound.proven) == (0.0, 2, 1)
    [nothing, *_] = rows_of(Point(1, FlexSetting()), outcomes[2:])
    assert (nothing.mean, nothing.worst, nothing.counted) == (None, None, 0)


def test_the_figures_are_listed(figures: Invoke) -> None:
    """A line for each, or one object."""
    names = [line.split()[0] for line in figures("--list").stdout.splitlines()]
    assert names == list(FIGURES)
    assert set(names) >= {"flex-5a", "flex-5b", "flex-5c", "flex-tasks"}
    assert list(json.loads(figures("--list", "--json").stdout)) == names
    on_dask = [line.split()[0] for line in figures("--list", "--dask").stdout.splitlines()]
    assert set(on_dask) < set(names)
    assert "hammr-5" in on_dask


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["flex-6"], "unknown figure 'flex-6'; known: flex-5a, flex-5b, flex-5c, flex-tasks"),
        (
            ["flex-5a", "--dask"],
            "flex-5a does not run on a Dask cluster; these do: flowflex-12",
        ),
        (["flex-5a", "-o", "taken"], "taken"),
        (["flex-5a", "--runs", "0"], "--runs"),
    ],
)
def test_bad_arguments_are_refused_before_anything_begins(
    figures: Invoke, tmp_path: Path, arguments: list[str], message: str
) -> None:
    """Exit code 2 and one message with the remedy."""
    (tmp_path / "taken").write_text("a file")
    done = figures(*arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stdout == ""


def test_without_the_extra_for_pictures_the_table_is_still_written(
    figures: Invoke, tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """stderr says what to install, and stdout where the table is."""

    monkeypatch.setattr(reproduction.importlib, "import_module", _no_module)
    done = figures(tiny, "--runs", "1", "--processes", "1")
    assert done.exit_code == 0
    assert "slotwise[plots]" in done.stderr
    assert done.stdout.splitlines()[-1] == str(Path("out/figures/tiny.csv"))
    assert [path.name for path in Path("out/figures").iterdir()] == ["tiny.csv"]


def test_python_callers_get_the_same_errors(
    tmp_path: Path, tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Python they are exceptions of slotwise."""
    with pytest.raises(InputError, match="unknown figure"):
        reproduce("flex-9")
    with pytest.raises(InputError, match="runs is 0"):
        reproduce(tiny, runs=0)
    made = reproduce(tiny, runs=1)
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(InputError, match="name another folder"):
        made.write_table(tmp_path / "taken")
    monkeypatch.setattr(reproduction.importlib, "import_module", _no_module)
    with pytest.raises(MissingExtraError, match="plots"):
        made.write_pictures(tmp_path)


def _no_module(name: str) -> None:
    raise ImportError(name)
