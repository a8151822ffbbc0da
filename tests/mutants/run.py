"""Run the tests of each mutant, and say which mutants they kill.

    scripts/mutants [--only ID|PACKAGE] [--jobs N]    run those without a result, then report
    scripts/mutants --killed [--jobs N]               the same for those that were killed before
    scripts/mutants --unmutated                       run all tests of the set without a mutant
    scripts/mutants --compare                         which are no longer killed, from results
    scripts/mutants --accept                          make the results the baseline

The set is `mutants.json`. Mutants change a copy of `src` and `experiments`, never the files of
the project. Results go to `out/mutants.jsonl`, one line each. A run takes only what has no
result yet for the files and the set as they are now, so a run that was interrupted continues.

A mutant without a place is "not found". Names that changed everywhere go to `renames.txt`; a
statement that changed is rewritten by hand in the set, with a reason in `rewritten`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path

from mutants.finding import Mutant, apply, find, places, read_renames, renamed

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SET = HERE / "mutants.json"
RENAMES = HERE / "renames.txt"
RESULTS = ROOT / "out" / "mutants.jsonl"
SECONDS_MAX = 60
KILLED = ("killed", "timeout")

PACKAGES = {"slotwise": ROOT / "src" / "slotwise", "experiments": ROOT / "experiments"}
"""The packages that mutants change."""

PLUGIN = f"""
import pathlib
import sys

here = str(pathlib.Path(__file__).parent)
sys.path.insert(0, here)  # Before the folder of the project, which has `experiments`, too.
import experiments
import slotwise
sys.path.remove(here)

def pytest_sessionstart(session):
    for name in {list(PACKAGES)}:
        file = sys.modules[name].__file__
        assert pathlib.Path(file).is_relative_to(here), file
"""
"""Imported by pytest from the copy. Makes sure that the tests import the copy, too."""


def read_set() -> list[Mutant]:
    """The mutants of the set, as they were made or rewritten."""
    return [
        Mutant(**each | {"tests": tuple(each["tests"])}) for each in json.loads(SET.read_text())
    ]


def write_set(mutants: Sequence[Mutant]) -> None:
    """Write the set; fields without a value are left out."""
    kept = [{key: value for key, value in asdict(each).items() if value} for each in mutants]
    SET.write_text(json.dumps(kept, indent=1) + "\n")


def state_of_files() -> str:
    """A digest of all that a result depends on."""
    digest = hashlib.sha256()
    files = {
        path for top in ("src", "experiments", "tests") for path in ROOT.glob(f"{top}/**/*.py")
    }
    for file in sorted(files - set(HERE.iterdir())):
        digest.update(f"{file.relative_to(ROOT)}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def identity(mutant: Mutant) -> str:
    """A digest of a mutant without its outcome."""
    what = replace(mutant, baseline=None, killed_by=None, rewritten=None)
    return hashlib.sha256(json.dumps(asdict(what)).encode()).hexdigest()[:16]


def read_results(mutants: Sequence[Mutant]) -> dict[str, dict[str, str]]:
    """The last result of each mutant, if neither files nor mutant have changed since."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    state, now = state_of_files(), {mutant.id: identity(mutant) for mutant in mutants}
    results = [result for line in lines if (result := json.loads(line))["state"] == state]
    return {each["id"]: each for each in results if now.get(each["id"]) == each["mutant"]}


@contextmanager
def copy_of_source() -> Iterator[Path]:
    """A temporary copy of the packages, compiled: pytest compiles only the changed file."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        source = Path(folder) / "src"
        for name, package in PACKAGES.items():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(package, source / name, ignore=ignored)
        (source / "mutants_plugin.py").write_text(PLUGIN)
        unchecked = [
            "--invalidation-mode",
            "unchecked-hash",
        ]  # Two writes may be of one instant.
        compiler = [
            sys.executable,
            "-m",
            "compileall",
            "-q",
            *unchecked,
            *(str(source / name) for name in PACKAGES),
        ]
        subprocess.run(compiler, check=True)
        yield source


@contextmanager
def changed(file: Path, text: str) -> Iterator[None]:
    """The file with another text, and without its compiled form."""
    original = file.read_text()
    compiled = {
        path: path.read_bytes() for path in file.parent.glob(f"__pycache__/{file.stem}.*")
    }
    for path in compiled:
        path.unlink()
    file.write_text(text)
    try:
        yield
    finally:
        file.write_text(original)
        for path, content in compiled.items():
            path.write_bytes(content)


def run_tests(source: Path, tests: Sequence[str], seconds: float) -> tuple[str, str]:
    """The outcome of test files with the package in `source`, and the test that failed."""
    if missing := [test for test in tests if not (ROOT / test.split("::")[0]).exists()]:
        return "error", f"no test file {missing[0]}"
    environment = os.environ | {
        "PYTHONPATH": str(source),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "CI": "1",  # Random examples are the same in each run.
    }
    with tempfile.TemporaryDirectory(prefix="m", dir=source.parent) as temporary:
        options = ["-x", "-q", "-n", "0", "-p", "mutants_plugin", "-p", "no:cacheprovider"]
        command = [sys.executable, "-m", "pytest", *options, "--tb=no", "-rfE", *tests]
        with subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment | {"TMPDIR": temporary},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                output = None
            finally:
                with suppress(ProcessLookupError):  # Its workers, too.
                    os.killpg(process.pid, signal.SIGKILL)
    return ("timeout", "") if output is None else outcome(process.returncode, output)


def run_mutant(source: Path, mutant: Mutant) -> tuple[str, str]:
    """The outcome of a mutant; the test that killed it last time runs first."""
    if mutant.killed_by and (ROOT / mutant.killed_by.split("::")[0]).exists():
        found = run_tests(source, [mutant.killed_by], SECONDS_MAX)
        if found[0] == "killed":
            return found
    return run_tests(source, mutant.tests, SECONDS_MAX)


def outcome(code: int, output: str) -> tuple[str, str]:
    """What an exit code of pytest says, and the first test that failed, or the last line.

    Pytest exits with 1 after failed tests and with 2 after errors of imports. A signal ends it
    if the mutant crashes the interpreter. Anything else says nothing about the mutant.
    """
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    last = output.strip().splitlines()[-1:] or [""]
    note = failed[1] if failed else last[0]
    if code == 0:
        return "survived", ""
    return ("killed" if code in (1, 2) or code < 0 else "error"), note


def run(mutants: Sequence[Mutant], jobs: int) -> None:
    """Run the tests of each mutant that has no result, and append its result to the file."""
    results = read_results(mutants)
    renames, state = read_renames(RENAMES.read_text()), state_of_files()
    new = [renamed(mutant, renames) for mutant in mutants if mutant.id not in results]
    files = [file for package in PACKAGES.values() for file in sorted(package.rglob("*.py"))]
    index = places(files, [m.function for m in new])
    identities = {mutant.id: identity(mutant) for mutant in mutants}
    RESULTS.parent.mkdir(exist_ok=True)
    sources: queue.SimpleQueue[Path] = queue.SimpleQueue()

    def one(mutant: Mutant) -> tuple[str, str, float]:
        place, begun = find(mutant, index), time.monotonic()
        if place is None:
            return "not found", "moved: rewrite it", 0.0
        source = sources.get()
        try:
            file = source / str(place.file.relative_to(ROOT)).removeprefix("src/")
            with changed(file, apply(place.file.read_text(), place.node, mutant.mutated)):
                return *run_mutant(source, mutant), time.monotonic() - begun
        finally:
            sources.put(source)

    with ExitStack() as stack:
        for _ in range(min(jobs, len(new))):
            sources.put(stack.enter_context(copy_of_source()))
        results_file = stack.enter_context(RESULTS.open("a"))
        pool = stack.enter_context(ThreadPoolExecutor(jobs))
        stack.callback(pool.shutdown, cancel_futures=True)  # First, when interrupted.
        for mutant, (what, note, seconds) in zip(new, pool.map(one, new), strict=True):
            result = {
                "id": mutant.id,
                "outcome": what,
                "note": note,
                "seconds": round(seconds, 1),
            }
            known = {"mutant": identities[mutant.id], "state": state}
            print(json.dumps(result | known), file=results_file, flush=True)
            print(f"{mutant.id:14}{what:10}{seconds:6.1f} s  {note}", flush=True)


def run_unmutated(mutants: Sequence[Mutant]) -> int:
    """Run all tests of the set on a copy without a mutant; 1 if one fails."""
    renames = read_renames(RENAMES.read_text())
    tests = sorted({test for mutant in mutants for test in renamed(mutant, renames).tests})
    failures = 0
    with copy_of_source() as source:
        for test in tests:
            begun = time.monotonic()
            what, note = run_tests(source, [test], SECONDS_MAX)
            failures += what != "survived"
            found = "passed" if what == "survived" else f"{what}: {note}"
            print(f"{time.monotonic() - begun:6.1f} s  {test}  {found}", flush=True)
    return min(failures, 1)


def report(mutants: Sequence[Mutant], results: Mapping[str, Mapping[str, str]]) -> int:
    """Print how many mutants are killed, and which are no longer; 1 if there are such."""
    found = Counter(results[m.id]["outcome"] if m.id in results else "not run" for m in mutants)
    found["rewritten"] = sum(mutant.rewritten is not None for mutant in mutants)
    print(", ".join(f"{count} {what}" for what, count in sorted(found.items())))
    lost = [
        mutant
        for mutant in mutants
        if mutant.baseline in KILLED
        and mutant.id in results
        and results[mutant.id]["outcome"] not in KILLED
    ]
    for mutant in lost:
        result = results[mutant.id]
        by = f", killed by {mutant.killed_by} before" if mutant.killed_by else ""
        print(f"{mutant.id}: {result['outcome']} {result['note']}{by}")
        print(f"    {mutant.function}: {mutant.original}\n    mutated: {mutant.mutated}")
    print(f"no longer killed: {len(lost)}")
    return min(len(lost), 1)


def accept(mutants: Sequence[Mutant], results: Mapping[str, Mapping[str, str]]) -> list[Mutant]:
    """The mutants with the outcomes of the results; those without a place keep their own."""
    return [
        replace(
            mutant,
            baseline=results[mutant.id]["outcome"],
            killed_by=results[mutant.id]["note"] or None,
        )
        if mutant.id in results and results[mutant.id]["outcome"] in (*KILLED, "survived")
        else mutant
        for mutant in mutants
    ]


def main() -> int:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="an id, a group of ids, or a folder or file")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--killed", action="store_true", help="those that were killed before")
    parser.add_argument("--unmutated", action="store_true")
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--accept", action="store_true")
    options = parser.parse_args()
    whole = read_set()
    chosen = [mutant for mutant in whole if is_chosen(mutant, options.only.rstrip("/"))]
    if options.killed:
        chosen = [mutant for mutant in chosen if mutant.baseline in KILLED]
    if not chosen:
        parser.error(f"no mutant is {options.only!r}")
    if options.unmutated:
        return run_unmutated(chosen)
    if options.accept:
        write_set(accept(whole, read_results(whole)))
        return 0
    if not options.compare:
        run(chosen, options.jobs)
    return report(chosen, read_results(chosen))


def is_chosen(mutant: Mutant, only: str) -> bool:
    """Whether `--only` names the mutant: by id, by the beginning of its id, or by its file."""
    return not only or any(
        name == only or name.startswith((f"{only}-", f"{only}/"))
        for name in (mutant.id, mutant.file)
    )


if __name__ == "__main__":
    sys.exit(main())
