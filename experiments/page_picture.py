"""Takes the picture of the page in docs/images/page.png: three pools with some 200 jobs.

    .venv/bin/python -m experiments.page_picture [--seconds 150] [--dark] [-o FILE]

Takes chromium, playwright and pillow. The jobs only wait and print.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from PIL import Image
from playwright.sync_api import sync_playwright

from slotwise.core.errors import SlotwiseError
from slotwise.service.clients.transport import Transport

SLOTS = 16

CONFIG = """\
slots = {slots}
resources = {{ memory = "64 GiB" }}
[preemption]
least_after = 2
grace = 0
[[pools]]
name = "research"
weight = 2
[[pools]]
name = "web"
slots_min = 4
[[pools]]
name = "nightly"
weight = 0.5
[service]
listen = "127.0.0.1:{port}"
[service.users.ann]
[service.users.bob]
[service.users.cleo]
[service.users.dan]
"""

WORK = """\
#!/bin/sh
# A program that seems to work: NAME SECONDS.
n=$(($2 * 2)); i=0
while [ $i -lt $n ]; do
  i=$((i + 1)); loss=$(awk "BEGIN {printf \\"%.4f\\", 2.3 / (1 + $i / 4)}")
  echo "step $i of $n: loss $loss"
  sleep 0.5
done
[ "$1" != flaky ]
"""

JOBS = (
    ("research", ("ann", "bob"), "train", ("resnet 30", "gpt-small 45", "lstm 20", "unet 25")),
    ("research", ("ann", "bob"), "evaluate", ("resnet 8", "unet 12", "gpt-small 6")),
    ("web", ("cleo", "ann"), "build", ("site 4", "search 6", "flaky 3", "images 5")),
    ("nightly", ("dan",), "backup", ("mail 15", "photos 35", "wiki 10", "index 20")),
)
"""Pool, users, program and its words."""

MORE_SECONDS = 7.0
"""How often further jobs are submitted."""


def main(
    output: Annotated[Path, typer.Option("-o")] = Path("docs/images/page.png"),
    seconds: Annotated[float, typer.Option(help="For how long the page is open.")] = 150,
    width: Annotated[int, typer.Option()] = 1400,
    height: Annotated[int, typer.Option()] = 1180,
    dark: Annotated[bool, typer.Option("--dark")] = False,
) -> None:
    """Take the picture."""
    chance = random.Random(7)
    with tempfile.TemporaryDirectory(prefix="sw-") as folder, served(Path(folder)) as transport:
        for _ in range(170):
            submit(transport, Path(folder), chance)
        token = transport.post("/v1/tokens", {"user": "ann"})
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"),
                args=["--no-sandbox"] if os.geteuid() == 0 else [],
            )
            page = browser.new_page(
                viewport={"width": width, "height": height},
                color_scheme="dark" if dark else "light",
            )
            page.add_init_script("localStorage.setItem('slotwise-range', '120')")
            page.goto(transport.post("/v1/codes")["url"].partition("/login")[0])
            page.get_by_label("Your token").fill(token["token"])
            page.get_by_role("button", name="Log in").click()
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                submit(transport, Path(folder), chance)
                page.wait_for_timeout(1000 * MORE_SECONDS)
            page.screenshot(path=output)
            browser.close()
    picture = Image.open(output).convert("RGB")
    picture.quantize(128, dither=Image.Dither.NONE).save(output, optimize=True)
    print(f"{output}: {output.stat().st_size} bytes")


@contextmanager
def served(folder: Path) -> Iterator[Transport]:
    """A server of three pools and four users."""
    (folder / "bin").mkdir()
    for program in {program for _, _, program, _ in JOBS}:
        (folder / "bin" / program).write_text(WORK)
        (folder / "bin" / program).chmod(0o755)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "team.toml").write_text(CONFIG.format(slots=SLOTS, port=port))
    command = [sys.executable, "-m", "slotwise", "serve", "--folder", str(folder / "service")]
    environ = {**os.environ, "XDG_STATE_HOME": str(folder), "XDG_RUNTIME_DIR": str(folder)}
    process = subprocess.Popen(
        [*command, "--config", str(folder / "team.toml")], env=environ, start_new_session=True
    )
    transport = Transport(f"unix:{folder / 'service' / 'socket'}")
    try:
        while not is_ready(transport):
            time.sleep(0.1)
        yield transport
        for job in transport.get("/v1/jobs", state="queued,waiting,running", limit=1000)[
            "jobs"
        ]:
            transport.post(f"/v1/jobs/{job['id']}/cancel")
    finally:
        transport.close()
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def is_ready(transport: Transport) -> bool:
    """Whether the server has started."""
    try:
        return not transport.get("/v1")["restoring"]
    except SlotwiseError:
        return False


def submit(transport: Transport, folder: Path, chance: random.Random) -> None:
    """Submit a job of a user."""
    pool, users, program, words = chance.choice(JOBS)
    name, seconds = chance.choice(words).split()
    job: dict[str, Any] = {
        "id": f"{program}-{name}",
        "command": [program, name, seconds],
        "pool": pool,
        "tasks": chance.choice([1, 1, 2, 4, 8]),
        "resources": {"memory": f"{chance.choice([1, 2, 3, 4])} GiB"},
        "attempts": 2,
    }
    environ = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    user = chance.choice(users)
    transport.post(
        "/v1/jobs", {"jobs": [job], "folder": str(folder), "environ": environ, "user": user}
    )


if __name__ == "__main__":
    typer.run(main)
