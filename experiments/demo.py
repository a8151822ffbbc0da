"""The demo: MapReduce jobs of three users share this machine, live and then simulated.

In its second act three users share a service.

`scripts/demo` runs it. All of its files are in out/demo.
"""

from __future__ import annotations

import shutil
import sys
import sysconfig
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

import slotwise
from experiments import service_demo
from experiments.measured import measured_jobs
from slotwise.core.cluster import Cluster
from slotwise.insight.report.page import write_pictures
from slotwise.insight.report.progress import Progress
from slotwise.insight.report.tables import comparison_table
from slotwise.results import Result
from slotwise.workload.workload import Workload

SCHEDULERS = ("fifo", "fair", "flex")
SLOTS = 2
BOOK_BYTES = 2 << 20
BOOKS = 60
RECORDS = 1_000_000

WORKLOAD = """\
slotwise: 1
cluster: {slots: 2}
objective: {penalty: response, aggregate: sum}
pools:
  - {name: batch}                                  # the nightly work, large
  - {name: research, weight: 2}                    # a team that explores
  - {name: web, weight: 2, slots_min: {task: 1}}   # short questions, one slot guaranteed
jobs:
  - {id: sort-everything, arrival: 0, pool: batch, program: sort,
     inputs: ["text/*.txt"], output: sorted, reducers: 8, split_bytes: 2097152}
  - {id: inverted-index, arrival: 0.3, pool: research, program: inverted-index,
     inputs: ["text/book-0[0-9].txt"], output: index, reducers: 2, split_bytes: 1048576}
  - {id: terasort, arrival: 0.6, pool: research, program: terasort,
     inputs: ["records/part*"], output: terasorted, reducers: 4, split_bytes: 4194304}
  - {id: count-all, arrival: 0.9, pool: batch, program: wordcount,
     inputs: ["text/*.txt"], output: counts-all, reducers: 6, split_bytes: 4194304}
  - {id: count-some, arrival: 1.2, pool: web, program: wordcount,
     inputs: ["text/book-0[0-2].txt"], output: counts-some, reducers: 1, split_bytes: 1048576}
  - {id: grep-import, arrival: 2, pool: web, program: grep, parameters: {pattern: "^import "},
     inputs: ["text/*.txt"], output: imports, split_bytes: 8388608}
  - {id: count-one, arrival: 3, pool: web, program: wordcount,
     inputs: ["text/book-05.txt"], output: counts-one, reducers: 1, split_bytes: 1048576}
"""


def main() -> None:
    """Make the input, run live under three schedulers, simulate the same, print the results."""
    begun = time.monotonic()
    console = Console(width=None if sys.stdout.isatty() else 120)
    folder = Path("out/demo").resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    file = _make_input(folder, console)
    live = _run_live(file, folder, console)
    _check_counts(folder, console)
    console.print("simulating the same tasks, as they were measured under fifo")
    measured = Workload(
        measured_jobs(live[0].log),
        cluster=Cluster.of_slots(SLOTS),
        pools=live[0].log.header.pools,
    )
    simulated = slotwise.compare(measured, SCHEDULERS)
    page = folder / "report.html"
    slotwise.write_report([*live, *simulated], page)
    write_pictures([result.reported for result in live], folder / "pictures")
    console.print(comparison_table([result.reported for result in [*live, *simulated]]))
    console.print(f"the workload: {file}", soft_wrap=True)
    console.print(f"the report:   {page}", soft_wrap=True)
    console.print(f"the pictures: {folder / 'pictures'}", soft_wrap=True)
    service_demo.main(folder, console)
    console.print(f"the demo took {time.monotonic() - begun:.0f} s")


def _make_input(folder: Path, console: Console) -> Path:
    """Real text: the sources and documentation of the installed Python and its packages."""
    text = folder / "text"
    text.mkdir()
    book = bytearray()
    count = 0
    for source in _sources():
        book += source.read_bytes()
        if len(book) >= BOOK_BYTES:
            (text / f"book-{count:02}.txt").write_bytes(book)
            count += 1
            book.clear()
        if count == BOOKS:
            break
    console.print(f"input: {count} books of real text, 2 MiB each, in {text}", soft_wrap=True)
    records = slotwise.mapreduce(
        "teragen", output=folder / "records", parameters={"records": RECORDS}, reducers=0
    )
    slotwise.run([records], slots=SLOTS)
    console.print(f"input: {RECORDS:,} generated records of 100 bytes for the terasort")
    file = folder / "workload.yaml"
    file.write_text(WORKLOAD, encoding="utf-8")
    return file


def _sources() -> Iterator[Path]:
    for place in ("stdlib", "purelib"):
        yield from sorted(Path(sysconfig.get_paths()[place]).rglob("*.py"))


def _run_live(file: Path, folder: Path, console: Console) -> list[Result]:
    results = []
    for name in SCHEDULERS:
        console.print(f"running live under {name} on {SLOTS} slots")
        with Progress(Console(stderr=True), f"{name}, live") as progress:
            [result] = slotwise.compare(
                file,
                [name],
                live=True,
                slots=SLOTS,
                log=folder / "live.jsonl",
                progress=progress,
            )
        results.append(result)
    return results


def _check_counts(folder: Path, console: Console) -> None:
    """Count the words again with a simple loop, and compare with every output."""
    for output, books in (("counts-all", "*.txt"), ("counts-one", "book-05.txt")):
        words: Counter[str] = Counter()
        for book in (folder / "text").glob(books):
            words.update(book.read_text(encoding="utf-8", errors="replace").split())
        for name in SCHEDULERS:
            counted = _read_counts(sorted((folder / f"{output}-{name}").glob("part-*")))
            assert counted == words, f"{output}-{name} differs from an independent count"
    console.print("checked: the word counts equal an independent count under every scheduler")


def _read_counts(parts: Sequence[Path]) -> dict[str, int]:
    counts = {}
    for part in parts:
        # Lines end at \n alone: other line separators may occur inside a word.
        for line in part.read_bytes().decode("utf-8").split("\n")[:-1]:
            word, _, count = line.rpartition("\t")
            counts[word] = int(count)
    return counts


if __name__ == "__main__":
    main()
