"""joblib's own tests of parallel loops pass with the backend "slotwise"."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "internals" / "sessions.md"
TIMEOUT_SECONDS = 118

EXCEPTIONS = {
    "test_auto_memmap_on_arrays_from_generator": "arguments are not memory-mapped",
    "test_backend_context_manager": "expects three processes; the session has fewer slots",
    "test_error_capture": "reads a private attribute with the pool of workers",
    "test_initializer_context": "a session has no `initializer`",
    "test_initializer_parallel": "a session has no `initializer`",
    "test_memmapping_leaks": "arguments are not memory-mapped",
    "test_nested_backend_in_sequential": "without `n_jobs`, loops use all slots",
}
"""Why tests fail here, by name."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "count"), [("slotwise and generator", 40), ("slotwise and not generator", 50)]
)
def test_the_tests_of_joblib_pass(part: str, count: int, tmp_path: Path) -> None:
    """Those that take a backend; the ones that fail are the exceptions."""
    # Scripts that these tests start know the backend, too.
    (tmp_path / "sitecustomize.py").write_text("import slotwise.integrations.joblib\n")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "--pyargs", "joblib.test.test_parallel"),
            *("-p", "joblib_suite", "-p", "no:cacheprovider", "-k", part),
            *("--rootdir", str(tmp_path), "-q", "--tb=no", "-rf", "-W", "ignore"),
        ],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(HERE)])},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None, done.stdout
    assert int(passed[1]) >= count
    failed = set(re.findall(r"^FAILED .*::(\w+)", done.stdout, re.MULTILINE))
    # With three slots or more, one of the exceptions passes.
    assert failed <= set(EXCEPTIONS)


def test_the_page_lists_the_exceptions() -> None:
    """Each exception is in the documentation, with the same reason."""
    page = PAGE.read_text(encoding="utf-8")
    assert [
        test for test, why in EXCEPTIONS.items() if f"| `{test}` | {why} |" not in page
    ] == []
