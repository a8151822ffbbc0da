"""`scripts/bench --check` on made-up benchmarks: what passes, and what fails by name."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks.check import Result

CHECK = Path(__file__).parents[1] / "benchmarks" / "check.py"
MAIN = "import sys, pathlib, check; sys.exit(check.main(pathlib.Path(sys.argv.pop())))"


def write(folder: Path, name: str, *results: Result) -> None:
    """A benchmark that returns these results."""
    made = ", ".join(f"Result(**{asdict(result)!r})" for result in results)
    script = f"""
from check import Result, serve

def check() -> list:
    return [{made}]

serve(print, check)
"""
    (folder / f"{name}.py").write_text(script)


def release(folder: Path, **values: float) -> None:
    """The values of the last release, of the benchmark `one`."""
    named = {f"one: {name}": value for name, value in values.items()}
    (folder / "release.json").write_text(json.dumps({"release": "0", "values": named}))


def checked(folder: Path, *options: str) -> tuple[int, str]:
    """The exit code and the output of a check of a folder."""
    command = [sys.executable, "-c", MAIN, *options, str(folder)]
    done = subprocess.run(command, cwd=CHECK.parent, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_what_meets_its_goal_and_the_release_passes(tmp_path: Path) -> None:
    """A value may be worse than the release by its noise."""
    write(tmp_path, "one", Result("a", 1.05, 2.0, "x", noise=0.1))
    release(tmp_path, a=1.0)
    code, text = checked(tmp_path)
    assert code == 0
    assert "FAILS" not in text


@pytest.mark.parametrize(("better", "value"), [("lower", 1.2), ("higher", 0.8)])
def test_what_fell_behind_the_release_fails(tmp_path: Path, better: str, value: float) -> None:
    """Also where the goal is met; it is named with both values."""
    goal = 2.0 if better == "lower" else 0.5
    write(tmp_path, "one", Result("a", value, goal, "x", better, noise=0.1))  # type: ignore[arg-type]
    release(tmp_path, a=1.0)
    code, text = checked(tmp_path)
    assert code == 1
    assert f"FAILS: one: a is behind the last release, {value} after 1" in text


def test_a_miss_needs_a_measured_cause(tmp_path: Path) -> None:
    """With a cause a miss passes, and the cause is printed; without one it fails."""
    cause = Result("a", 3.0, 2.0, "x", cause="half of it is pickling")
    write(tmp_path, "one", cause, Result("b", 3.0, 2.0, "x"))
    code, text = checked(tmp_path)
    assert code == 1
    assert "cause: half of it is pickling" in text
    assert "FAILS: one: b misses its goal, 3 for 2, and states no measured cause" in text
    assert "FAILS: one: a" not in text


def test_a_failed_benchmark_is_named_and_the_others_continue(tmp_path: Path) -> None:
    """Its error is shown."""
    (tmp_path / "bad.py").write_text(
        "def check() -> list: ...\n\ndef check() -> list:\n    1 / 0\n\ncheck()\n"
    )
    write(tmp_path, "one", Result("a", 1.0, 2.0, "x"))
    code, text = checked(tmp_path)
    assert code == 1
    assert "FAILS: bad failed: ZeroDivisionError: division by zero" in text
    assert "1 values" in text


def test_values_without_a_counterpart_are_named(tmp_path: Path) -> None:
    """A new value passes as new; a value of the release that is no longer measured fails."""
    write(tmp_path, "one", Result("new", 1.0, 2.0, "x"))
    release(tmp_path, old=1.0)
    code, text = checked(tmp_path)
    assert code == 1
    assert "release       new" in text
    assert "FAILS: one: old: release.json has it, but it is no longer measured" in text
    (tmp_path / "release.json").unlink()
    code, text = checked(tmp_path)
    assert code == 0
    assert "release.json does not exist" in text


def test_write_makes_these_values_those_of_the_release(tmp_path: Path) -> None:
    """With names, those of other benchmarks stay."""
    write(tmp_path, "one", Result("a", 1.5, 2.0, "x"))
    write(tmp_path, "two", Result("b", 7.0, 9.0, "x"))
    release(tmp_path, a=1.0, lost=3.0)
    assert checked(tmp_path, "--write")[0] == 0
    write(tmp_path, "two", Result("b", 8.0, 9.0, "x"))
    assert checked(tmp_path, "--write", "one")[0] == 0
    values = json.loads((tmp_path / "release.json").read_text())["values"]
    assert values == {"one: a": 1.5, "two: b": 7.0}
