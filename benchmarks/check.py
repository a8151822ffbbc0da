"""The benchmarks with goals, in small sizes, compared with their goals and the last release.

    scripts/bench --check [NAME ...] [--write]

Each benchmark with a function `check` runs in a process of its own and returns its results as
data. A line shows a value, its goal, and the value of the last release. The exit code is 1 if

- a value has fallen behind the last release by more than its noise;
- a value misses its goal, and no measured cause is stated;
- a benchmark fails or takes longer than `MAX_SECONDS`; the others continue;
- the last release has a value that is no longer measured.

A benchmark of which something is behind, or missed without a cause, is measured once more, and
the better value counts, because other work on the machine makes values only worse. `--write`
makes the values of this run those of the last release, in `benchmarks/release.json`, unless a
benchmark failed; with names, only the values of these benchmarks.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

FOLDER = Path(__file__).parent
RELEASE = "release.json"
MAX_SECONDS = 240
"""After this time a benchmark is stopped, and counts as failed."""

NO_CAUSE = "and states no measured cause"

COUNTED, TIMED, MEDIA = 0.05, 0.5, 0.8
"""The noise of counts, of ratios of times on a shared machine, and of ratios to a bare medium.

In five whole runs of the same code the largest value was at most 1.45 times the smallest one of
the second sort, and 1.75 times for memory, pages of files and sockets.
"""


@dataclass(frozen=True, slots=True)
class Result:
    """What a benchmark has measured, as a ratio or a count.

    name    unique in its benchmark
    goal    that is met by a value as good or better
    noise   the part by which two measurements of the same code may differ
    cause   of a known miss: what was measured, and where the time or the memory goes
    """

    name: str
    value: float
    goal: float
    unit: str
    better: Literal["lower", "higher"] = "lower"
    noise: float = TIMED
    cause: str = ""

    @property
    def is_missed(self) -> bool:
        """Whether the value is worse than the goal."""
        return self.value > self.goal if self.better == "lower" else self.value < self.goal

    def is_behind(self, released: float | None) -> bool:
        """Whether the value is worse than that of the last release by more than its noise.

        Differences of a hundredth of the goal never count: some values are almost 0.
        """
        if released is None or abs(self.value - released) <= abs(self.goal) / 100:
            return False
        factor = 1 + self.noise
        if self.better == "lower":
            return self.value > released * factor
        return self.value * factor < released

    def problem(self, released: float | None) -> str:
        """Why the check fails because of it; empty if it does not."""
        if self.is_behind(released):
            return f"is behind the last release, {shown(self.value)} after {shown(released)}"
        if self.is_missed and not self.cause:
            return f"misses its goal, {shown(self.value)} for {shown(self.goal)}, {NO_CAUSE}"
        return ""

    def better_of(self, other: Result) -> Result:
        """The better of two measurements."""
        is_less = self.value <= other.value
        return self if is_less == (self.better == "lower") else other


def serve(main: Callable[[], None], check: Callable[[], Iterable[Result]]) -> None:
    """Run a benchmark as a script; with `--check FILE` write its results there instead."""
    if sys.argv[1:2] != ["--check"]:
        main()
        return
    results = [asdict(result) for result in check()]
    Path(sys.argv[2]).write_text(json.dumps(results), encoding="utf-8")


def main(folder: Path = FOLDER) -> int:
    """Check the benchmarks of a folder; the exit code."""
    known = benchmarks(folder)
    parser = argparse.ArgumentParser(
        prog="scripts/bench --check",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}")
    parser.add_argument("--write", action="store_true", help="make these values the release's")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"{unknown[0]!r} has no goal; expected one of {', '.join(known)}")
    released = read_release(folder)
    if options.names:
        released = {one: v for one, v in released.items() if one.split(":")[0] in options.names}
    begun = time.monotonic()
    measured, problems, failed = check_all(folder, options.names or known, released)
    lost = [one for one in released if one not in measured and one.split(":")[0] not in failed]
    if options.write and not failed:
        others = {one: v for one, v in read_release(folder).items() if one not in released}
        write_release(folder, others | measured)
        problems = [one for one in problems if NO_CAUSE in one]
    else:
        problems += [f"{one}: {RELEASE} has it, but it is no longer measured" for one in lost]
    print(f"\n{len(measured)} values in {time.monotonic() - begun:.0f} s")
    for problem in problems:
        print(f"FAILS: {problem}")
    return 1 if problems else 0


def check_all(
    folder: Path, names: Sequence[str], released: Mapping[str, float]
) -> tuple[dict[str, float], list[str], list[str]]:
    """Run these benchmarks: all values, the problems, and the benchmarks that failed."""
    begun = time.monotonic()
    measured: dict[str, float] = {}
    problems, failed = [], []
    for number, name in enumerate(names, 1):
        progress(f"[{number}/{len(names)}] {name}, after {time.monotonic() - begun:.0f} s")
        try:
            results = measure(folder, name, released)
        except BenchmarkFailed as error:
            progress("")
            print(f"{name}\n  FAILED: {error}", flush=True)
            failed.append(name)
            problems.append(f"{name} failed: {str(error).strip().splitlines()[-1]}")
            continue
        progress("")
        print(table(name, results, released), flush=True)
        measured |= {key(name, result): result.value for result in results}
        for result in results:
            if problem := result.problem(released.get(key(name, result))):
                problems.append(f"{key(name, result)} {problem}")
    return measured, problems, failed


def benchmarks(folder: Path) -> list[str]:
    """The scripts that return results."""
    scripts = sorted(folder.glob("*.py"))
    return [path.stem for path in scripts if "\ndef check() ->" in path.read_text("utf-8")]


def key(benchmark: str, result: Result) -> str:
    """The name of a result among all."""
    return f"{benchmark}: {result.name}"


class BenchmarkFailed(Exception):
    """A benchmark raised an exception, or was stopped."""


def measure(folder: Path, name: str, released: Mapping[str, float]) -> list[Result]:
    """The results of a benchmark, measured again if one would fail the check."""
    first = run(folder, name)
    if not any(result.problem(released.get(key(name, result))) for result in first):
        return first
    again = {result.name: result for result in run(folder, name)}
    return [result.better_of(again.get(result.name, result)) for result in first]


def run(folder: Path, name: str) -> list[Result]:
    """The results of a benchmark in a process of its own, whose children end with it."""
    with tempfile.TemporaryDirectory(prefix="slotwise-bench-") as place:
        out, printed = Path(place, "results.json"), Path(place, "printed")
        root = FOLDER.parent
        paths = (folder, FOLDER, root, root / "tests", os.environ.get("PYTHONPATH", ""))
        with printed.open("w") as file:
            process = subprocess.Popen(
                [sys.executable, str(folder / f"{name}.py"), "--check", str(out)],
                stdout=file,
                stderr=subprocess.STDOUT,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, filter(None, paths)))},
                start_new_session=True,
            )
        try:
            if code := process.wait(MAX_SECONDS):
                text = printed.read_text("utf-8", "replace")
                raise BenchmarkFailed(f"exit code {code}\n{text}")
            return [Result(**one) for one in json.loads(out.read_text("utf-8"))]
        except subprocess.TimeoutExpired:
            raise BenchmarkFailed(f"it took more than {MAX_SECONDS} s") from None
        except (OSError, ValueError, TypeError) as error:
            raise BenchmarkFailed(f"its results cannot be read: {error}") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def table(name: str, results: Sequence[Result], released: Mapping[str, float]) -> str:
    """The results of a benchmark, a line each, and the causes of misses."""
    lines = [name]
    for result in results:
        before = released.get(key(name, result))
        sign = "<=" if result.better == "lower" else ">="
        state = "missed" if result.is_missed else "met"
        if result.is_behind(before):
            state += ", BEHIND"
        lines.append(
            f"  {result.name:44} {shown(result.value):>9} {sign} {shown(result.goal):>7}"
            f"  release {'new' if before is None else shown(before):>9}  {state:14}"
            f" {result.unit}"
        )
        if result.is_missed:
            lines.append(f"    cause: {result.cause or 'NOT STATED'}")
    return "\n".join(lines)


def shown(value: float | None) -> str:
    """Three significant digits, without an exponent."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def read_release(folder: Path) -> dict[str, float]:
    """The values of the last release; none without a file."""
    path = folder / RELEASE
    if not path.exists():
        print(f"{path} does not exist: nothing can have fallen behind; write it with --write")
        return {}
    values: dict[str, float] = json.loads(path.read_text("utf-8"))["values"]
    return values


def write_release(folder: Path, values: Mapping[str, float]) -> None:
    """Replace the values of the last release."""
    from slotwise import __version__

    rounded = {name: float(f"{value:.4g}") for name, value in sorted(values.items())}
    made = {"release": __version__, "values": rounded}
    (folder / RELEASE).write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")


def progress(text: str) -> None:
    """Show what runs, if a terminal shows it; the next line replaces it."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}\r", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # A benchmark that runs ends, too.
    sys.exit(main())
