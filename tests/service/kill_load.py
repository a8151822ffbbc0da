"""Clients of a server that is killed meanwhile, each in a process of its own.

Each submits until there is a file `stop`, waits for what it has submitted and checks it. It
exits with 0 if all is right. The ids of accepted jobs with their right ends are lines of JSON.
"""

from __future__ import annotations

import json
import operator
import os
import random
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from slotwise import Client
from slotwise.service.clients.transport import (
    NoServerError,
    ServerClosedError,
    ServerRefusedError,
    Transport,
    job_path,
)

T = TypeVar("T")

PATIENCE = 240.0
"""Seconds; a client that has waited for this long has failed."""

WORDS = "to be or not to be that is the question\n" * 20


class Load:
    """What all clients do: requests that are repeated, and notes of what was accepted."""

    def __init__(self, folder: Path, kind: str, seed: int) -> None:
        self.folder, self.kind, self.random = folder, kind, random.Random(seed)
        self.name = f"{kind}{seed}"
        self.transport = Transport(os.environ["SLOTWISE_SERVER"])
        self.accepted: dict[str, dict[str, Any]] = {}

    def rounds(self) -> Iterator[int]:
        """The numbers of rounds, until the load stops."""
        number = 0
        (self.folder / f"{self.name}.began").touch()
        while not (self.folder / "stop").exists():
            yield number
            number += 1
            time.sleep(self.random.uniform(0, 0.2))

    def repeated(self, request: Callable[[], T]) -> T:
        """The answer to a request, which is made until the server gives one."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return request()
            except (NoServerError, ServerClosedError):
                assert time.monotonic() < until
                time.sleep(0.02)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """What answers a body."""
        return self.repeated(lambda: self.transport.post(path, body))

    def submit(self, *jobs: Mapping[str, Any]) -> list[str]:
        """The ids of jobs; a key makes the repetitions harmless."""
        body = {
            "jobs": jobs,
            "folder": str(self.folder),
            "environ": dict(os.environ),
            "key": uuid.uuid4().hex,
        }
        return [job["id"] for job in self.post("/v1/jobs", body)["jobs"]]

    def note(self, job: str, states: tuple[str, ...] = ("done",), **about: Any) -> None:
        """Note how a job that was accepted must end."""
        self.accepted[job] = {"id": job, "states": states, **about}
        with (self.folder / f"{self.name}.accepted").open("a") as file:
            file.write(json.dumps(self.accepted[job]) + "\n")

    def wait(self) -> None:
        """Wait for the ends of all jobs."""
        for job, right in self.accepted.items():
            path = job_path(job, "wait")
            found = self.repeated(lambda path=path: self.transport.get(path, timeout=PATIENCE))  # type: ignore[misc]
            assert found["state"] in right["states"], found


def commands(load: Load) -> None:
    """Commands, arrays, dependencies and outputs. Each task notes its begin and its end."""
    for number in load.rounds():
        ran = load.folder / "ran" / f"{load.name}-{number}"
        tasks, seconds = load.random.choice([1, 1, 4]), load.random.choice([0, 0.01, 0.3])
        note = f"echo $SLOTWISE_TASK >> {ran}"
        script = f"{note}.begun; sleep {seconds}; echo {number}; {note}.ended"
        first = {"id": f"{load.name}-{number}", "command": script, "tasks": tasks}
        out = str(load.folder / "out" / f"{load.name}-{number}")
        then = {"command": f"{note}.after; echo after", "after": [first["id"]], "output": out}
        stuck = {"command": "sleep 600; echo over", "after": [first["id"]]}
        one, two, three = load.submit(first, then, stuck)
        load.note(one, ran=str(ran), tasks=tasks)
        load.note(two, output=out)
        load.note(three, ("cancelled",))
        for action in ("hold", "release") if number % 2 else ():
            with suppress(ServerRefusedError):  # It may be over.
                load.post(job_path(one, action), {})
        load.post(job_path(three, "cancel"), {})
    load.wait()


def calls(load: Load) -> None:
    """Calls whose inputs are results of others, also of other executors."""
    ends: list[int] = []
    with Client(reconnect_seconds=PATIENCE) as client:
        found, right = [], []
        one, two = client.executor(name="one"), client.executor(name="two")
        last = one.submit(operator.add, 0, 0)
        for number in load.rounds():
            slow = two.submit(_slow, number, load.random.choice([0, 0, 0.2]))
            last = load.random.choice([one, two]).submit(operator.add, last, slow)
            found += [slow, last, client.submit(operator.neg, number)]
            right += [number, number * (number + 1) // 2, -number]
            found[-min(len(found), 60)].result(PATIENCE)  # The queue stays short.
        for position, future in enumerate(found):
            future.add_done_callback(lambda _, position=position: ends.append(position))
        assert [future.result(PATIENCE) for future in found] == right
    assert sorted(ends) == list(range(len(found)))
    for job in {future.job for future in found}:
        load.note(job)


def _slow(number: int, seconds: float) -> int:
    time.sleep(seconds)
    return number


def mark_of(folder: Path) -> str:
    """What the ids of programs end with, for the names of owners of their folders."""
    return str(folder).replace("/", "-")


def programs(load: Load) -> None:
    """MapReduce programs, whose results are files."""
    source = load.folder / f"{load.name}.txt"
    source.write_text(WORDS)
    for number in load.rounds():
        out = str(load.folder / "out" / f"{load.name}-{number}")
        about = {"id": f"{load.name}-{number}{mark_of(load.folder)}", "reducers": 1}
        entry = {"program": "wordcount", "inputs": [str(source)], "output": out}
        (job,) = load.submit({**about, **entry})
        load.note(job, counts=out)
        time.sleep(1)
    load.wait()


KINDS = {"commands": commands, "calls": calls, "programs": programs}


if __name__ == "__main__":
    folder, kind, seed = sys.argv[1:]
    KINDS[kind](Load(Path(folder), kind, int(seed)))
