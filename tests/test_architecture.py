"""The structure: layers, no import circles, a pure core, public names, and the base install."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from importlib import import_module
from pathlib import Path

import pytest

import slotwise

SOURCE = Path(slotwise.__file__).parent
ROOT = SOURCE.parents[1]
CORE = ("core", "policy")
EDGES = {
    f"core/{name}.py"
    for name in (
        *("earlier_paths", "files", "history", "log", "log_validation", "loop", "placement"),
        "tracebacks",
    )
}
"""The modules of the core with files or random numbers, and what uses them: no policy does."""
IMPURE = {
    # clocks and random sources
    "time", "datetime", "calendar", "random", "secrets", "uuid",
    # files and the system
    "os", "io", "pathlib", "shutil", "tempfile", "glob", "fsspec", "sys", "logging", "sqlite3",
    # other machines, threads and processes
    "socket", "ssl", "select", "selectors", "http", "urllib", "asyncio", "threading", "queue",
    "multiprocessing", "subprocess", "concurrent", "signal", "ctypes", "cloudpickle", "pickle",
}  # fmt: skip
"""Modules that give access to a clock, randomness, files, other machines or processes."""

CALLS = {"open", "print", "input", "exec", "eval", "__import__", "breakpoint", "globals"}
"""Built-in functions that the core must not call."""

EXTRAS = (
    "pyarrow", "altair", "vl_convert", "ortools", "numba", "distributed", "dask", "scipy",
    "pandas", "simpy", "loky", "pebble", "joblib", "sklearn",
)  # fmt: skip
"""Packages that only extras and tests install."""


def core_files() -> list[Path]:
    """All files of the core."""
    files: list[Path] = []
    for name in CORE:
        files += sorted((SOURCE / name).rglob("*.py"))
    assert len(files) > 20
    return [path for path in files if str(path.relative_to(SOURCE)) not in EDGES]


def imports_of(path: Path) -> Iterator[str]:
    """The modules that a file imports, also inside functions and for type checkers only."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            assert node.module
            yield node.module


@pytest.mark.parametrize("path", core_files(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_the_core_uses_no_clock_no_randomness_and_no_files(path: Path) -> None:
    """Values in, values out: it neither imports nor calls anything with side effects."""
    for module in imports_of(path):
        assert module.split(".")[0] not in IMPURE, f"{path} imports {module}"
        assert not module.startswith("numpy.random")
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in CALLS, f"{path}:{node.lineno} calls {node.func.id}"
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            reached = (node.value.id, node.attr)
            assert reached not in {("np", "random"), ("np", "load"), ("np", "save")}


def test_the_core_imports_only_the_core() -> None:
    """The core imports itself, the standard library and numpy.

    One file imports numba, which compiles functions, and two ortools, which solves networks;
    both are optional.
    """
    allowed = dict.fromkeys(("paper.py", "flow_network.py"), "ortools")
    allowed["compiled.py"] = "numba"
    edges = {f"slotwise.{name.removesuffix('.py').replace('/', '.')}" for name in EDGES}
    edges.remove("slotwise.core.placement")  # It draws by a seed, so its values are fixed.
    for path in core_files():
        for module in imports_of(path):
            parts = module.split(".")
            if parts[0] == "slotwise":
                assert parts[1] in CORE, f"{path} imports {module}"
                assert module not in edges, f"{path} imports {module}"
            else:
                numeric = {"numpy", allowed.get(path.name)}
                is_known = parts[0] in sys.stdlib_module_names or parts[0] in numeric
                assert is_known, f"{path} imports {module}"


def test_no_module_imports_in_a_circle() -> None:
    """Imports inside functions and under TYPE_CHECKING count, too."""
    files = modules()
    imports = {name: imported_modules(path, files) - {name} for name, path in files.items()}
    # It only names its public names, and every module of a package imports the package.
    imports["slotwise"].clear()
    assert circles(imports) == set()


def modules() -> dict[str, Path]:
    """The files of all modules of the package and of the experiments, by name."""
    files = {}
    for folder in SOURCE, ROOT / "experiments":
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder.parent).with_suffix("").parts
            files[".".join(parts).removesuffix(".__init__")] = path
    return files


def imported_modules(path: Path, known: Collection[str]) -> set[str]:
    """Those of the known modules that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in known else str(node.module) for name in names}
    return found & set(known)


def circles(imports: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """The sets of modules that import each other, directly or not."""
    reached = {name: set(direct) for name, direct in imports.items()}
    for middle in imports:
        for by in reached.values():
            if middle in by:
                by |= reached[middle]
    return {
        frozenset(other for other in reached[name] if name in reached[other])
        for name in imports
        if name in reached[name]
    }


def test_no_file_is_long() -> None:
    """No file has more than 800 lines."""
    assert [path for path in modules().values() if path.read_text().count("\n") > 800] == []


def test_no_class_name_has_two_meanings() -> None:
    """No two classes of the package have the same name."""
    counts = Counter(
        node.name
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    assert {name for name, count in counts.items() if count > 1} == set()


def test_layers_hold() -> None:
    """import-linter reports no broken contract."""
    program = Path(sys.executable).with_name("lint-imports")
    if not program.exists():
        pytest.skip("import-linter is not installed; pip install 'slotwise[dev]'")
    done = subprocess.run(
        [program, "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_every_public_name_exists_and_is_documented() -> None:
    """Each is an attribute of `slotwise`, is the one of its module, and has a docstring."""
    for name, module in slotwise.PUBLIC.items():
        found = getattr(slotwise, name)
        assert found is getattr(import_module(module), name)
        assert found.__doc__, f"{name} has no docstring"
    assert set(slotwise.__all__) == {"__version__", *slotwise.PUBLIC}
    assert set(slotwise.__all__) <= set(dir(slotwise))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        slotwise.nonsense  # noqa: B018


def test_type_checkers_see_the_same_public_names() -> None:
    """The imports under TYPE_CHECKING are the same as those on first use."""
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


def test_importing_slotwise_loads_no_large_module() -> None:
    """Worker processes import slotwise: it loads neither numpy nor pydantic nor the planner."""
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


def test_the_base_install_plans_simulates_and_runs(tmp_path: Path) -> None:
    """Without extras: a plan, a simulation, a word count; a report names the missing extra."""
    script = tmp_path / "base_alone.py"
    script.write_text(BASE_ALONE.format(blocked=set(EXTRAS)))
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("the base suffices\n")
