"""Golden logs of the workloads that the repository shows, under all schedulers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from experiments import demo
from golden.golden import Case
from golden.runs import Run
from slotwise import Cluster, Host, Job, Phase, Shuffle, Simulation, Tasks, Workload
from slotwise.policy.scheduler import ALLOCATORS, ASSIGNERS, QUEUEINGS

ROOT = Path(__file__).parents[2]
FILE = re.compile(r"^```yaml\n# ([\w-]+)\.yaml\n(slotwise: 1\n.*?)^```", re.M | re.S)
PLACED = [name for name in ALLOCATORS if name not in ("flowflex", "flowflex-paper")]
"""The allocators whose runs are placed by each assigner: of FlowFlex, only the fast one."""

UNFIT = ("program:", "dataflow:", "wrok")
"""Text of files that need input, or that a page shows as a mistake."""


@dataclass(frozen=True)
class FromText:
    """A case of a workload file that is written first, beside the input of its programs."""

    text: str
    scheduler: str = "fair"

    def __call__(self, log: Path) -> None:
        """Write the log."""
        with TemporaryDirectory() as folder:
            file = Path(folder, "jobs.yaml")
            file.write_text(self.text)
            write_books(Path(folder))
            options = {} if "cluster:" in self.text else {"slots": 2}
            Run(file, self.scheduler, None, options)(log)


def write_books(folder: Path) -> None:
    """The input of the demo, only smaller: ten books, and records to sort."""
    for name in "text", "records":
        (folder / name).mkdir()
    for number in range(10):
        book = "".join(f"import word{line % 7} book{number}\n" for line in range(40 + number))
        (folder / "text" / f"book-{number:02}.txt").write_text(book)
    records = "".join(f"{line * 7919 % 10007:010} record\n" for line in range(200))
    (folder / "records" / "part-0").write_text(records)


@cache
def workload_files() -> dict[str, str]:
    """The workload files of README and the documentation, by page and name."""
    found = {}
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for name, text in FILE.findall(page.read_text()):
            if not any(unfit in text for unfit in UNFIT):
                found[f"{page.stem}-{name}"] = text
    return found


def big_and_small() -> list[Job]:
    """Like docs/examples/compare.py: small jobs arrive after a big one."""
    jobs = [Job("big", (Phase("map", Tasks(60, 3.0)),))]
    for number in range(1, 6):
        jobs.append(Job(f"small-{number}", (Phase("map", Tasks(4, 3.0)),), 5.0 * number))
    return jobs


def hoarding(shuffle: Shuffle) -> Workload:
    """Like docs/examples/hoarding.py: a large job takes the reduce slots early."""

    def job(name: str, maps: int, reduces: int, arrival: float = 0.0) -> Job:
        mapping = Phase("map", Tasks(maps, 10.0), "map")
        reducing = Phase("reduce", Tasks(reduces, 2.0), "reduce", after="map", copy=3.0)
        return Job(name, (mapping, reducing), arrival)

    hosts = tuple(Host(f"h{number}", {"map": 2, "reduce": 1}) for number in range(4))
    jobs = (job("large", 40, 12), job("small", 4, 2, 15.0))
    return Workload(jobs, Cluster(hosts), shuffle=shuffle)


def near_input() -> Workload:
    """Like docs/examples/delay.py: tasks prefer the hosts that hold their input."""
    hosts = tuple(Host(f"h{number}", {"task": 2}, f"r{number % 3}") for number in range(6))
    jobs = tuple(
        Job(f"job-{number}", (Phase("map", Tasks(6, 10.0)),), 2.0 * number)
        for number in range(4)
    )
    return Workload(jobs, Cluster(hosts), replicas=3)


def cases() -> dict[str, Case]:
    """Each workload under each scheduler and assigner."""
    return dict(_cases())


def _cases() -> Iterator[tuple[str, Case]]:
    truth = Simulation(seed=1, noise=0.3, remote_factor=2.0)
    for name in (*ALLOCATORS, *QUEUEINGS):
        for title, text in workload_files().items():
            yield f"{title}-{name}", FromText(text, name)
        for assigner in ASSIGNERS if name in PLACED else ("greedy",):
            options = {"assigner": assigner}
            title = f"near-input-{name}-{assigner}"
            yield title, Run(near_input(), name, truth, options)
    for name in ("fifo", "fair", "flex", "flowflex-fast"):
        yield f"demo-{name}", FromText(demo.WORKLOAD, name)
        yield f"big-and-small-{name}", Run(big_and_small(), name, None, {"slots": 10})
        for part, split in ((1.0, False), (0.05, False), (0.05, True)):
            shuffle = Shuffle(slow_start=part, split=split)
            title = f"hoarding-{part:g}{'-split' if split else ''}-{name}"
            yield title, Run(hoarding(shuffle), name)
