"""Pages with commands and code, which are run step by step."""

from __future__ import annotations

import pwd
import re
import shutil
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from slotwise.cli.serve import settings_of

ROOT = Path(__file__).parents[2]

RUN_PAGES = (
    "README.md",
    "docs/workload-file.md",
    "docs/dataflow.md",
    "docs/when-will-it-end.md",
    "docs/howto/use-from-python.md",
    "docs/howto/plan-in-python.md",
    "docs/howto/simulate-in-python.md",
    "docs/howto/results-in-python.md",
    "docs/howto/sessions.md",
    "docs/howto/submit-jobs.md",
    "docs/howto/watch-a-session.md",
    "docs/howto/large-results.md",
    "docs/howto/read-a-report.md",
    "docs/howto/ask-why.md",
    "docs/howto/ask-why-now.md",
    "docs/why-it-waits.md",
    "docs/what-if.md",
    "docs/howto/replay-a-trace.md",
    "docs/howto/write-a-program.md",
    "docs/howto/write-batches.md",
    "docs/howto/history.md",
    "docs/howto/emulate-a-cluster.md",
    "docs/howto/run-commands.md",
    "docs/howto/order-commands.md",
    "docs/howto/limit-commands.md",
    "docs/howto/see-output.md",
    "docs/howto/change-hosts.md",
    "docs/howto/concurrent-futures.md",
    "docs/howto/asyncio.md",
    "docs/howto/near-the-data.md",
    # It starts a scheduler and three workers with their nannies.
    pytest.param("docs/howto/run-on-a-cluster.md", marks=pytest.mark.slow),
    # Its block with scikit-learn, which is imported in three processes, takes ten seconds.
    pytest.param("docs/howto/joblib.md", marks=pytest.mark.slow),
    "docs/howto/dask-collections.md",
    "docs/howto/measure-the-gate.md",
    "docs/tutorials/share-a-local-cluster.md",
    pytest.param(
        "docs/tutorials/share-a-team-cluster.md",
        marks=[
            pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl"),
            pytest.mark.skipif(
                ssl.OPENSSL_VERSION_INFO >= (3, 4), reason="Dask loses TLS: cpython#148594"
            ),
        ],
    ),
)

SERVICE_PAGES = (
    "docs/howto/serve.md",
    "docs/howto/use-the-service-from-python.md",
    "docs/howto/slurm-commands.md",
    "docs/howto/monitor-the-service.md",
    "docs/howto/operate-the-service.md",
)
"""Pages that use one server, one after the other: the first starts it, the last stops it."""

SCRIPT_PAGES = ("docs/tutorial.md", "docs/tutorials/workflow.md")


@pytest.mark.parametrize("name", RUN_PAGES)
def test_a_page_shows_the_real_output(
    name: str, page_faults: Callable[[str], list[str]]
) -> None:
    """Every file, block of Python and command of the page has the output on the page."""
    assert page_faults(name) == []


@pytest.mark.parametrize("name", ["gpu-workstation.md", "jupyterhub.md"])
def test_the_configurations_of_recipes_are_valid(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server accepts each of them on a machine with their accounts."""
    account = pwd.getpwuid(0)[3:]
    monkeypatch.setattr(
        "pwd.getpwnam", lambda one: pwd.struct_passwd((one, "x", 1000, *account))
    )
    text = (ROOT / "docs" / "howto" / name).read_text(encoding="utf-8")
    blocks = re.findall(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        path = tmp_path / "slotwise.toml"
        path.write_text(block)
        assert settings_of(path, {}).pools


def test_the_pages_of_the_service_show_the_real_output(
    page_faults: Callable[..., list[str]],
) -> None:
    """So do the pages of the service, with a server that they start, kill and stop."""
    assert page_faults(*SERVICE_PAGES) == []


@pytest.mark.parametrize("name", SCRIPT_PAGES)
def test_each_block_of_a_page_is_a_script(
    name: str, page_faults: Callable[..., list[str]]
) -> None:
    """Its blocks of Python share files only, and the page names the Python that runs them."""
    assert page_faults(name, scripts=True) == []
    assert ".venv/bin/python" in (ROOT / name).read_text(encoding="utf-8")


def test_dots_match_any_text(matches: Callable[[str, str], bool]) -> None:
    """Three dots replace timings; all other text is compared."""
    assert matches("took ... s\nend\n", "took 1.5 s\nend\n")
    assert matches("begin\n...\nend", "begin\none\ntwo\nend\n")
    assert not matches("took ... s\nend\n", "took 1.5 s\nstop\n")
    assert not matches("a.b", "aXb")
