"""Functions with a cache are sent to other processes like those without."""

from __future__ import annotations

import functools
import operator
import pickle
import subprocess
import sys
from pathlib import Path

from slotwise.jobs.pickling import pickled_by_value

SCRIPT = """
import functools

import slotwise


@functools.cache
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def doubled(n):
    return 2 * fibonacci(n)


with slotwise.Session(1) as session:
    print([session.submit(one, 30).result() for one in (fibonacci, doubled)])
job = slotwise.Job("j", (slotwise.Phase("p", slotwise.Tasks(1, 0.1)),))
calls = slotwise.Calls(job, {"p": fibonacci})
slotwise.run([calls], slots=1)
print(calls.results["p"][0])
"""


@functools.lru_cache(maxsize=3)
def importable(number: int) -> int:
    """A function that other processes import."""
    return number


def elsewhere(body: bytes, code: str) -> str:
    """What code prints in another process, where `f` is what the pickle holds."""
    program = f"import pickle\nf = pickle.loads({body!r})\n{code}"
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_cached_functions_of_a_script_run_in_other_processes(tmp_path: Path) -> None:
    """In calls and jobs, on their own and within others, also those that call themselves."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[832040, 1664080]\n0\n", "")


def test_a_cached_function_keeps_its_parameters_and_not_its_cache() -> None:
    """It is another function than the one that was sent."""

    @functools.lru_cache(maxsize=2, typed=True)
    def local(number: float) -> float:
        return number + 1

    assert local(1) == 2
    shows = "print(f.cache_parameters(), f.cache_info().currsize, f(1), f.__name__)"
    assert elsewhere(pickled_by_value(local), shows) == (
        "{'maxsize': 2, 'typed': True} 0 2 local\n"
    )


def test_a_cached_function_without_a_name_of_its_own_is_sent() -> None:
    """A cache around a partial function, or around a function of another module."""
    for cached in functools.cache(functools.partial(pow, 2)), functools.cache(operator.neg):
        assert elsewhere(pickled_by_value(cached), "print(f(3))") == f"{cached(3)}\n"


def test_a_cached_function_that_can_be_imported_is_sent_by_name() -> None:
    """So that its cache in a worker process lasts."""
    assert pickle.loads(pickled_by_value(importable)) is importable
