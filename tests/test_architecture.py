"""The house stands as drawn: layers, a pure core, public names, and a base that suffices."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import slotwise

SOURCE = Path(slotwise.__file__).parent
ROOT = SOURCE.parents[1]
CORE = ("model", "objective", "estimation", "allocation", "assignment", "dmrs", "scheduler.py")
WORLDLY = {
    # clocks and chance
    "time", "datetime", "calendar", "random", "secrets", "uuid",
    # files and the system
    "os", "io", "pathlib", "shutil", "tempfile", "glob", "fsspec", "sys", "logging", "sqlite3",
    # other machines, threads and processes
    "socket", "ssl", "select", "selectors", "http", "urllib", "asyncio", "threading", "queue",
    "multiprocessing", "subprocess", "concurrent", "signal", "ctypes", "cloudpickle", "pickle",
}  # fmt: skip
"""Modules by which a clock, chance, a file, another machine or process would come in."""

CALLS = {"open", "print", "input", "exec", "eval", "__import__", "breakpoint", "globals"}
"""Built-in functions that the core has no need of."""

EXTRAS = (
    "pyarrow", "altair", "vl_convert", "ortools", "numba", "distributed", "dask", "scipy",
    "pandas", "simpy", "loky", "pebble",
)  # fmt: skip
"""What only extras and tests bring."""


def core_files() -> list[Path]:
    """All files of the core."""
    files: list[Path] = []
    for name in CORE:
        place = SOURCE / name
        files += [place] if place.is_file() else sorted(place.rglob("*.py"))
    assert len(files) > 20
    return files


def imports_of(path: Path) -> Iterator[str]:
    """The modules that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            assert node.module
            yield node.module


@pytest.mark.parametrize("path", core_files(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_the_core_sees_no_clock_no_chance_and_no_files(path: Path) -> None:
    """Values in, values out: no import of, and no call to, what reaches outside."""
    for module in imports_of(path):
        assert module.split(".")[0] not in WORLDLY, f"{path} imports {module}"
        assert not module.startswith("numpy.random")
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in CALLS, f"{path}:{node.lineno} calls {node.func.id}"
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            reached = (node.value.id, node.attr)
            assert reached not in {("np", "random"), ("np", "load"), ("np", "save")}


def test_the_core_imports_the_core_alone() -> None:
    """Of ours only core packages, of others only the standard library and numpy.

    numba compiles functions of the core, and ortools solves a network, where these are
    installed; one file knows each.
    """
    allowed = {"compiled.py": "numba", "least_cost.py": "ortools"}
    names = {name.removesuffix(".py") for name in CORE}
    for path in core_files():
        for module in imports_of(path):
            parts = module.split(".")
            if parts[0] == "slotwise":
                assert parts[1] in names, f"{path} imports {module}"
            else:
                numeric = {"numpy", allowed.get(path.name)}
                is_known = parts[0] in sys.stdlib_module_names or parts[0] in numeric
                assert is_known, f"{path} imports {module}"


def test_layers_hold() -> None:
    """import-linter finds every contract kept."""
    program = Path(sys.executable).with_name("lint-imports")
    if not program.exists():
        pytest.skip("import-linter is not installed; pip install 'slotwise[dev]'")
    done = subprocess.run(
        [program, "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_every_public_name_is_there_and_says_what_it_is() -> None:
    """Each can be had from `slotwise` itself, is the one of its module, and is documented."""
    for name, module in slotwise.PUBLIC.items():
        found = getattr(slotwise, name)
        assert found is getattr(import_module(module), name)
        assert found.__doc__, f"{name} has no docstring"
    assert set(slotwise.__all__) == {"__version__", *slotwise.PUBLIC}
    assert set(slotwise.__all__) <= set(dir(slotwise))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        slotwise.nonsense  # noqa: B018


def test_type_checkers_see_the_same_public_names() -> None:
    """What is imported under TYPE_CHECKING is what is imported when it is asked for."""
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    (block,) = (
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    seen = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == slotwise.PUBLIC


def test_a_bare_import_loads_next_to_nothing() -> None:
    """Worker processes import slotwise: neither numpy nor pydantic nor the planner comes."""
    code = "import slotwise, sys; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True
    ).stdout.split()
    assert not {"numpy", "pydantic", "typer", "rich", "slotwise.api"} & set(loaded)


BASE_ALONE = """
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path

BLOCKED = {blocked!r}


class Blocker(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
        return None


def main():
    import slotwise as s

    jobs = [s.Job(name, (s.Phase("map", s.Tasks(6, 1.0)),)) for name in "ab"]
    planned = s.plan(jobs, "flex", slots=3)
    assert planned.bound <= planned.value
    assert s.simulate(jobs, "fair", slots=3).metrics["jobs_done"] == 2
    text = Path("words.txt")
    text.write_text("to be or not to be\\n" * 50)
    job = s.mapreduce("wordcount", text, "counted", reducers=2)
    result = s.run([job], "flex", slots=2, log="run.jsonl")
    assert not result.failed
    lines = [
        line.split() for part in sorted(Path("counted").glob("part-*"))
        for line in part.read_text().splitlines()
    ]
    assert {{tuple(line) for line in lines}} == {{
        ("to", "100"), ("be", "100"), ("or", "50"), ("not", "50")
    }}
    assert s.replay("run.jsonl").is_identical
    try:
        result.report("report.html")
    except s.MissingExtraError as error:
        assert "slotwise[plots]" in str(error)
    else:
        raise AssertionError("a report was written without the extra for it")
    assert not BLOCKED & {{name.split(".")[0] for name in sys.modules}}
    print("the base suffices")


if __name__ == "__main__":
    sys.meta_path.insert(0, Blocker())
    main()
"""


def test_the_base_alone_plans_simulates_and_runs(tmp_path: Path) -> None:
    """Without extras: a plan, a simulation, a real word count; a report says what it lacks."""
    script = tmp_path / "base_alone.py"
    script.write_text(BASE_ALONE.format(blocked=set(EXTRAS)))
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("the base suffices\n")
