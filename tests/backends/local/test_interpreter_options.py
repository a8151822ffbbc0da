"""Workers have the options of the interpreter that begins them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import json, multiprocessing, os, sys
from backends.local.test_interpreter_options import settings
from slotwise import Session
from slotwise.core.cluster import Cluster, Host

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = {"spawned": pool.apply(settings), "here": settings()}
    with Session(1) as session:
        found["worker"] = session.submit(settings).result(100)
        session.submit(os._exit, 1).exception(100)
        found["next worker"] = session.submit(settings).result(100)
    if "agent" in sys.argv:
        from agent_processes import Loopback
        from slotwise.backends.agents.slots import AgentSlots
        from slotwise.backends.local.processes import Processes

        cluster = Cluster((Host("host", {"task": 1}),))
        loopback, slots = Loopback(cluster), AgentSlots()
        with slots as workers:
            slots.add(*loopback.connect())
            workers.start(0, "settings", settings, ())
            (reply,) = workers.wait(100)
            reply = reply.opened()
            found["agent"] = reply.value
        loopback.close()
    print(json.dumps(found))
"""

TESTS = Path(__file__).parents[2]


def settings() -> dict[str, Any]:
    """What options have set in this process."""
    flags = {name: getattr(sys.flags, name) for name in dir(sys.flags) if name[0].islower()}
    # Workers never have their folder on the path, and keep PYTHONHASHSEED where -E is given.
    for name in ("safe_path", "hash_randomization", "isolated", "ignore_environment"):
        del flags[name]
    flags = {name: value for name, value in flags.items() if not callable(value)}
    return {
        "flags": flags,
        "warnings": sys.warnoptions,
        "digits": sys.get_int_max_str_digits(),
        "debug": __debug__,
        "prefix": sys.pycache_prefix,
    }


@pytest.mark.parametrize(
    ("options", "variables"),
    [
        (["-O", "-W", "error::BytesWarning", "-X", "utf8", "-X", "dev"], {}),
        (["-b", "-s", "-X", "int_max_str_digits=700", "-X", "pycache_prefix=/tmp/none"], {}),
        ([], {"PYTHONOPTIMIZE": "2", "PYTHONWARNINGS": "always", "PYTHONINTMAXSTRDIGITS": "0"}),
        (["-E", "-B"], {"PYTHONOPTIMIZE": "1", "PYTHONDEVMODE": "1"}),
    ],
    ids=lambda given: " ".join(given) or "none",
)
@pytest.mark.slow
def test_workers_have_the_options_of_the_interpreter(
    options: list[str], variables: dict[str, str], tmp_path: Path
) -> None:
    """Also later ones. Except for further options of -X, a spawned process has the same."""
    program = tmp_path / "program.py"
    program.write_text(f"import sys\nsys.path.insert(0, {str(TESTS)!r})\n{PROGRAM}")
    clean = {n: value for n, value in os.environ.items() if not n.startswith("PYTHON")}
    done = subprocess.run(
        [sys.executable, *options, str(program), "agent"],
        env=clean | variables,
        stdout=subprocess.PIPE,
        check=True,
    )
    found = json.loads(done.stdout)
    here, spawned = found.pop("here"), found.pop("spawned")
    assert found == dict.fromkeys(("worker", "next worker", "agent"), here)
    names = [name for name in here if name not in ("digits", "prefix")]
    spawned["flags"]["int_max_str_digits"] = here["flags"]["int_max_str_digits"]
    assert {name: spawned[name] for name in names} == {name: here[name] for name in names}
