"""Golden logs: restructuring changes no byte of any log.

Each module of `KINDS` has `cases() -> dict[str, Case]`. A case writes one log at the given path
from fixed input: no clock, no random source without a seed, no name of this machine.
`<kind>.json` beside this file has the number of lines and the digest of each log.

From the project's root, with `tests` on PYTHONPATH:

    python -m golden.golden DIR [NAME ...]   write the logs into DIR, to compare them with those
                                             of another commit by `diff -r`
    python -m golden.golden --accept         renew the digests, after a change that is meant
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import rounding  # noqa: F401  # Before numpy.

Case = Callable[[Path], None]

HERE = Path(__file__).parent
KINDS = ("simulated", "analysis", "plans", "local", "agents", "gate")


def all_cases() -> Iterator[tuple[str, str, Case]]:
    """Each kind, name and case."""
    for kind in KINDS:
        cases: dict[str, Case] = importlib.import_module(f"golden.{kind}").cases()
        for name, case in cases.items():
            yield kind, name, case


def digests(kind: str) -> dict[str, str]:
    """The digests of a kind, by name of the case."""
    path = HERE / f"{kind}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def digest(log: Path) -> str:
    """The number of lines and the first 32 hexadecimal digits of the SHA-256 of a log."""
    content = log.read_bytes()
    lines = content.count(b"\n")
    return f"{lines} {hashlib.sha256(content).hexdigest()[:32]}"


def write(folder: Path, names: list[str]) -> dict[str, dict[str, str]]:
    """Write the logs of these cases, or of all, as `folder/kind/name.jsonl`; their digests."""
    found: dict[str, dict[str, str]] = {kind: {} for kind in KINDS}
    for kind, name, case in all_cases():
        if not names or name in names:
            log = folder / kind / f"{name}.jsonl"
            log.parent.mkdir(parents=True, exist_ok=True)
            case(log)
            found[kind][name] = digest(log)
    return found


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description="Write the golden logs, or renew their digests."
    )
    parser.add_argument("folder", nargs="?", type=Path, help="where to write the logs")
    parser.add_argument("names", nargs="*", help="the cases; all by default")
    parser.add_argument("--accept", action="store_true", help="renew the digests")
    options = parser.parse_args()
    if options.accept:
        with TemporaryDirectory() as folder:
            for kind, found in write(Path(folder), []).items():
                text = json.dumps(dict(sorted(found.items())), indent=1)
                (HERE / f"{kind}.json").write_text(text + "\n")
    elif options.folder:
        write(options.folder, options.names)
    else:
        parser.error("expected a folder or --accept")


if __name__ == "__main__":
    main()
