"""Without the extra dask, everything but Dask works."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys

for name in ("msgpack", "distributed"):
    sys.modules[name] = None  # As if it were not installed.
import slotwise

with slotwise.Session(1) as session:
    print(session.submit(len, "abc").result())
job = slotwise.Job("j", (slotwise.Phase("p", slotwise.Tasks(1, 0.0)),))
print(len(slotwise.run([job], slots=1).failed))
for function in (slotwise.Session, lambda dask: slotwise.run([job], dask=dask)):
    try:
        function(dask="tcp://127.0.0.1:1")
    except slotwise.MissingExtraError as error:
        print(error)
try:
    import slotwise.dask
except slotwise.MissingExtraError as error:
    print(error)
"""


def test_sessions_and_runs_need_no_dask() -> None:
    """Only a Dask cluster and the gate do, and the messages name the extra."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False
    )
    *results, run, session, gate = done.stdout.splitlines()
    assert (results, done.stderr) == (["3", "0"], "")
    for what, message in (
        ("a Dask cluster", run),
        ("a Dask cluster", session),
        ("the gate", gate),
    ):
        assert message.startswith(f"{what} needs an optional part (")
        assert "): pip install 'slotwise[dask]'" in message
