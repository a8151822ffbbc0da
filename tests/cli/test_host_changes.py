"""An imported trace may have random changes of the hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

IMPORT = ("trace", "import", "swim", "swim.tsv", "--hosts", "4", "--hosts-per-rack", "2")


def test_hosts_of_an_imported_trace_change_by_the_seed(folder: Path, slotwise: Any) -> None:
    """The same seed gives the same file, which is simulated and replayed."""
    lines = (f"j{number}\t{number}\t1\t{5 << 27}\t100\t9\n" for number in range(20))
    (folder / "swim.tsv").write_text("".join(lines))
    for name, seed in (("one", "7"), ("same", "7"), ("other", "8")):
        done = slotwise(*IMPORT, "-o", f"{name}.yaml", "--host-changes", "9", "--seed", seed)
        assert done.exit_code == 0, done.stderr
    one, same, other = ((folder / f"{n}.yaml").read_text() for n in ("one", "same", "other"))
    assert one == same != other
    assert one.count("    - {at: ") == 9
    assert slotwise("simulate", "one.yaml", "--log", "log.jsonl").exit_code == 0
    assert slotwise("replay", "log.jsonl").exit_code == 0
