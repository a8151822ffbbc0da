"""Whatever cannot be done is refused before anything begins: 2, one message, nothing made."""

from __future__ import annotations

import builtins
import re
from pathlib import Path
from typing import Any

import pytest

import slotwise

BOOK = Path(__file__).parents[1] / "workload" / "bad_files.txt"
FILES = re.findall(
    r"^== (.+)\n((?:.*\n)*?)=> (.+)$", BOOK.read_text(encoding="utf-8"), re.MULTILINE
)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "text", "message"), FILES, ids=[name for name, *_ in FILES])
def test_a_bad_file(name: str, text: str, message: str, slotwise: Any, folder: Path) -> None:
    """Exit code 2, one line on stderr, nothing on stdout, nothing on disk."""
    (folder / "jobs.yaml").write_text(text, encoding="utf-8")
    done = slotwise("simulate", "jobs.yaml", "--log", "log.jsonl", "--json")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("slotwise: jobs.yaml: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert [path.name for path in folder.iterdir()] == ["jobs.yaml"]


PROGRAMS = {
    "wordcont, inputs: in, output: out": "'wordcont'; did you mean 'wordcount'?",
    "'none.py:A', inputs: in, output: out": "none.py not found; check the path",
    "'own.py:B', inputs: in, output: out": "the file defines no 'B'; it defines A",
    "'own.py:os', inputs: in, output: out": "is not a MapReduce; derive its class from",
    "'own.py:A', inputs: in, output: out, parameters: {b: 1}": "its parameters: none",
    "'shape.py:A', inputs: in, output: out": "its map must be def map(self, key, value)",
    "'torn.py:A', inputs: in, output: out": "torn.py failed: SyntaxError",
    "'exits.py:A', inputs: in, output: out": "exits.py failed: SystemExit: bye",
    "grep, inputs: in, output: out": "missing a required argument: 'pattern'",
    "grep, inputs: in, output: out, parameters: {pattern: '['}": "is not a regular expression",
    "wordcount, inputs: 'zz/*', output: out": "input 'zz/*': no file matches; give a path",
    "wordcount, output: out": "no inputs; give paths or globs of files to read",
    "wordcount, inputs: in, output: in": "exists; name another directory, remove it, or set",
    "wordcount, inputs: in, output: own.py": "is a file; name a directory that does not exist",
    "wordcount, inputs: in, output: out, input_format: xml": "unknown input format 'xml'",
    "wordcount, inputs: in, output: out, output_format: xml": "unknown output format 'xml'",
    "wordcount, inputs: 'zz://a', output: out": "Protocol not known: zz",
    "wordcount, inputs: in, output: '~nobody-is-here/../in'": "exists; name another directory",
}
"""Entries of a job that a program does, and what is said to them."""


@pytest.mark.parametrize("entries", PROGRAMS)
def test_a_bad_program(entries: str, slotwise: Any, folder: Path) -> None:
    """A bad program, input or output is refused with the name of the job."""
    write_programs(folder)
    (folder / "~nobody-is-here").mkdir()
    (folder / "jobs.yaml").write_text(f"slotwise: 1\njobs: [{{id: a, program: {entries}}}]\n")
    before = sorted(folder.rglob("*"))
    done = slotwise("run", "jobs.yaml", "--slots", "1", "--json")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("slotwise: jobs.yaml: jobs[0] (line 2): job 'a': ")
    assert PROGRAMS[entries] in done.stderr
    assert done.stderr.count("\n") == 1
    assert [p for p in sorted(folder.rglob("*")) if "__pycache__" not in str(p)] == before


def write_programs(folder: Path) -> None:
    """A correct program, and some that are not."""
    head = "import os, sys\nfrom slotwise import MapReduce\n"
    own = f"{head}class A(MapReduce):\n    def map(self, key, value): yield value, 1\n"
    (folder / "own.py").write_text(own)
    (folder / "shape.py").write_text(own.replace("key, value", "value"))
    (folder / "torn.py").write_text("class A(:\n")
    (folder / "exits.py").write_text(f"{head}sys.exit('bye')\n")
    (folder / "in").mkdir()
    (folder / "in" / "a.txt").write_text("a b\n")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("out/x", "./out/y/../x/"),
        ("out", "out/x/y"),
        ("out/x/y", "out"),
        ("{folder}/out", "out"),
        ("link/y", "in/y/z"),
        ("in/y/z", "link/y"),
        ("link/y", "in/y"),
    ],
)
def test_two_jobs_with_one_output(one: str, other: str, slotwise: Any, folder: Path) -> None:
    """Outputs that are the same place, or one inside the other, are refused."""
    write_programs(folder)
    (folder / "link").symlink_to("in")
    (folder / "jobs.yaml").write_text(
        "slotwise: 1\njobs:\n"
        f"  - {{id: a, program: wordcount, inputs: in, output: {one.format(folder=folder)}}}\n"
        f"  - {{id: b, program: wordcount, inputs: in, output: {other}}}\n"
        "  - {id: c, program: wordcount, inputs: in, output: out-of-the-way}\n"
    )
    done = slotwise("run", "jobs.yaml", "--slots", "1")
    assert done.exit_code == 2
    assert "write to the same output" in done.stderr
    assert not (folder / "out").exists()
    assert not (folder / "in" / "y").exists()


def test_overwriting_keeps_files_that_no_job_wrote(slotwise: Any, folder: Path) -> None:
    """`--overwrite` replaces earlier outputs and no other files."""
    write_programs(folder)
    (folder / "jobs.yaml").write_text(
        "slotwise: 1\njobs: [{id: a, program: wordcount, inputs: in, output: .}]\n"
    )
    done = slotwise("run", "jobs.yaml", "--slots", "1", "--overwrite")
    assert done.exit_code == 2
    assert "holds files that no job has written" in done.stderr
    assert (folder / "own.py").exists()


OPTIONS = {
    "simulate --scheduler fairr": "unknown scheduler 'fairr'; did you mean 'fair'?",
    "simulate --scheduler FLEX": "unknown scheduler 'FLEX'; did you mean 'flex'?",
    "run --scheduler flow": "unknown scheduler 'flow'; did you mean 'flowflex'?",
    "run --workers 2": "`run` has no option --workers; did you mean '--slots'?",
    "run -j 2": "`run` has no option -j; did you mean '--slots'?",
    "run -j2": "`run` has no option -j; did you mean '--slots'?",
    "run --force": "`run` has no option --force; did you mean '--overwrite'?",
    "simulate --force": "`simulate` has no option --force; --help lists them",
    "simulate --nois=3": "`simulate` has no option --nois; did you mean '--noise'?",
    "plan --objectiv tardines": "no option --objectiv; did you mean '--objective'?",
    "plan --objective tardines": "unknown penalty 'tardines'; did you mean 'tardiness'?",
    "sbatch": "there is no command 'sbatch'; did you mean 'submit'?",
    "simlate": "there is no command 'simlate'; did you mean 'simulate'?",
    "sim": "there is no command 'sim'; did you mean 'simulate'?",
    "queue": "there is no command 'queue'; did you mean 'list'?",
    "other": "there is no command 'other'; known: plan, simulate, run, ",
    "simulate --scheduler best": "unknown scheduler 'best'; known: fifo, fair, ",
    "plan --allocator=": "unknown allocator ''; known: fifo, fair, ",
    "plan --scheduler dmrs --allocator=": "leave out --allocator, --objective and --aggregate",
    "plan --objective=": "--objective: unknown penalty ''; known: response, ",
    "plan --allocator best": "unknown allocator 'best'; known: fifo, fair, ",
    "compare --schedulers fifo,best": "unknown scheduler 'best'; known: fifo, fair, ",
    "compare --schedulers ,": "--schedulers is []; name some, such as fifo, fair and flex",
    "simulate --assigner best": "unknown assigner 'best'; known: greedy, delay",
    "simulate --objective best": "unknown penalty 'best'; known: response, ",
    "simulate --aggregate mean": "slotwise: --aggregate is 'mean'; use sum or max",
    "simulate --objective makespan --aggregate sum": "makespan is a maximum",
    "plan --objective tardy": "job 'small': penalty tardy needs a deadline; give it deadline:",
    "simulate --objective lateness --aggregate max": "penalty lateness needs a deadline",
    "run --slots 1 --objective tardiness": "penalty tardiness needs a deadline",
    "compare --objective sla": "job 'small': penalty sla needs steps; give it steps: [[",
    "compare --live --slots 1 --objective sla": "job 'small': penalty sla needs steps",
    "compare --live --noise 0.3 --outage a=1+2": "--noise, --outage: for simulations only",
    "simulate --scheduler dmrs": "dmrs keeps no min and max shares; leave out slots_min",
    "run --scheduler dmrs --slots map=1,task=1": "not slots of kinds map, task",
    "simulate --objective sla --log log.jsonl": "job 'small': penalty sla needs steps",
    "simulate --assigner delay --waits soon": "--waits is 'soon'; expected two numbers",
    "simulate --assigner delay --waits 1,2,3": "--waits is '1,2,3'; expected two numbers",
    "simulate --assigner delay --waits=-1,2": "they must be numbers >= 0",
    "simulate --waits 1,2": "--waits is a parameter of the assigners delay and flow, not of",
    "simulate --levels persist": "--levels is a parameter of the assigners delay and flow",
    "simulate --assigner delay --levels new": "--levels is 'new'; give persist or restart",
    "simulate --slots two": "--slots is 'two'; expected a number >= 1, or numbers by kind, as",
    "simulate --slots 0": "--slots is '0'; expected a number >= 1",
    "plan --slots 1.5": "--slots is '1.5'; expected a number >= 1",
    "run --slots map=2,reduce": "--slots is 'map=2,reduce'; expected a number >= 1, or numbers",
    "run --slots map=2,map=3": "--slots is 'map=2,map=3'; expected",
    "run --slots map=-1,task=2": "--slots is 'map=-1,task=2'; expected",
    "run --slots map=0": "--slots is 'map=0'; expected a number >= 1",
    "run --slots =3": "--slots is '=3'; expected",
    "simulate --resources memory": "--resources is 'memory'; expected amounts by name, as in",
    "simulate --resources gpu=x": "--resources is 'gpu=x'; expected amounts by name",
    "run --resources gpu=0.5": "--resources: gpu is 0.5; give a whole number",
    "run --resources memory=4Gix": "--resources: memory is '4Gix'; expected a whole number of",
    "plan --resources memory=nan": "--resources: memory is nan; give bytes as a whole number",
    "run --emulate-hosts --resources gpu=1": "--resources is for one host, and emulated hosts",
    "run --dask tcp://127.0.0.1:9 --resources gpu=1": "--resources is for one host, and Dask",
    "run --slots 100000000": "--slots is 100000000 for a run on this machine, which has ",
    "compare --live --slots map=9999,task=99999": "--slots is 109998 for a run on this machine",
    "run --emulate-hosts": "there are no hosts to emulate: the workload has no `cluster:",
    "run --emulate-hosts --slots 2": "slots are 2 where hosts are emulated, which have",
    "run --dask tcp://127.0.0.1:9 --emulate-hosts": "out --slots and --emulate-hosts, or give",
    "run --dask-slots 2": "--dask-slots is for the workers of a Dask cluster; give --dask, too",
    "simulate --core-cost 3": "--core-cost is a parameter of the assigner flow, not of",
    "compare --emulate-hosts": "hosts are emulated in live runs; add --live, or",
    "run --slots reduce=1": "no host has slots for phases of kind 'task'",
    "simulate --slots map=1": "no host has slots for phases of kind 'task'",
    "simulate --preempt 5": "--preempt is '5'; expected numbers, as in least=5,fair=30",
    "simulate --preempt least=soon": "--preempt is 'least=soon'; expected numbers, as in least",
    "run --slots 1 --preempt most=5": "--preempt has no key 'most'; known: least, fair, ",
    "compare --preempt grace=2": "by which pools never reclaim slots; add least, fair or jobs",
    "simulate --preempt least=1,least=2": "--preempt is 'least=1,least=2'; expected numbers",
    "simulate --preempt least=-1": "--preempt: least is -1.0; give seconds >= 0",
    "simulate --preempt least=nan": "--preempt: least is nan; give seconds >= 0",
    "simulate --preempt fair=1,fraction=2": "--preempt: fraction is 2.0; it must be above 0",
    "simulate --preempt fair=1,grace=inf": "--preempt: grace is inf; give seconds >= 0",
    "simulate --slow-start 5": "slotwise: --slow-start is 5.0; give a part from 0 to 1",
    "run --slots 1 --slow-start nan": "--slow-start is nan; give a part from 0 to 1",
    "simulate --epoch 0": "--epoch is 0.0; give a finite number >= 1e-06",
    "simulate --epoch nan": "--epoch is nan; give a finite number >= 1e-06",
    "simulate --log none/log": "log 'none/log': No such file or directory; name another file",
    "run --slots 1 --log none/log": "log 'none/log': No such file or directory",
    "compare --log /": "log '/' is not the path of a file; give a path with",
    "simulate --log jobs.yaml": "--log is the workload file 'jobs.yaml'; name another file",
    "run --slots 1 --report jobs.yaml": "--report is the workload file 'jobs.yaml'",
    "run --slots 1 --report jobs.yaml/x": "jobs.yaml' is not a directory; name another file",
    "run --slots 1 --report .": "is a directory; name another file",
}
"""Commands with options that will not do, and what is said to them."""


@pytest.mark.parametrize("line", OPTIONS)
@pytest.mark.sampled(4)
def test_a_bad_option(line: str, slotwise: Any, folder: Path) -> None:
    """It is refused before the run, which would take minutes."""
    command, *options = line.split()
    done = slotwise(command, "jobs.yaml", *options)
    assert (done.exit_code, done.stdout) == (2, "")
    assert OPTIONS[line] in done.stderr
    assert done.stderr.count("\n") == 1
    assert [path.name for path in folder.iterdir()] == ["jobs.yaml"]


@pytest.mark.parametrize(
    "options",
    [
        "--save-seconds -1",
        "--rack-factor 0",
        "--attempts 0",
        "--noise nan",
        "--seed -1",
    ],
)
def test_an_option_out_of_range(options: str, slotwise: Any) -> None:
    """The message names the option; the exit code is 2."""
    done = slotwise("simulate", "jobs.yaml", *options.split())
    assert (done.exit_code, done.stdout) == (2, "")
    assert options.split()[0] in done.stderr


def test_a_report_without_its_extra(
    slotwise: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says how to install it, before the run begins."""
    real = builtins.__import__

    def without_plots(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] in ("altair", "vl_convert"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_plots)
    monkeypatch.setattr("importlib.import_module", without_plots)
    done = slotwise("run", "jobs.yaml", "--slots", "1", "--report", "page.html")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "pip install 'slotwise[plots]'" in done.stderr
    assert [path.name for path in folder.iterdir()] == ["jobs.yaml"]


def test_a_later_schedulers_output_is_refused_before_the_first_runs(
    tmp_path: Path,
) -> None:
    """The output of flex is checked before fifo runs."""
    (tmp_path / "in.txt").write_text("a b\n")
    (tmp_path / "out-flex").mkdir()
    (tmp_path / "out-flex" / "mine").touch()
    file = tmp_path / "w.yaml"
    file.write_text(
        "slotwise: 1\njobs: [{id: j, program: wordcount, inputs: in.txt, output: out}]\n"
    )
    with pytest.raises(slotwise.InputError, match="out-flex"):
        slotwise.compare(file, ["fifo", "flex"], live=True, slots=1)
    assert not (tmp_path / "out-fifo").exists()
