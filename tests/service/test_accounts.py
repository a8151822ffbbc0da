"""Work that runs as accounts of users, and what a user tries against others and root."""

from __future__ import annotations

import json
import os
import pwd
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest

from service.accounts import ANN, BOB, AccountServer, folder_of, missing, serving
from slotwise.core.errors import InputError
from slotwise.jobs.accounts import Account
from slotwise.jobs.endings import send_to_own
from slotwise.service.planned.forker import LoopWaits, TimedStream
from slotwise.service.settings import Settings
from slotwise.service.users.access import User
from slotwise.service.wire import frames
from waiting import until

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.fixture(scope="module")
def server() -> Iterator[AccountServer]:
    """A server with one slot, so that all tasks want the same worker."""
    with serving() as found:
        yield found


def ids(account: str) -> tuple[int, list[int]]:
    """The number of an account, and those of its groups."""
    found = pwd.getpwnam(account)
    return found.pw_uid, sorted(os.getgrouplist(account, found.pw_gid))


def run(server: AccountServer, user: str, command: Any, folder: Path, **more: Any) -> str:
    """Run a command of a user, and return what it has printed."""
    (job,) = submit(server, user, {"command": command, **more}, folder)
    assert (found := server.wait(job))["state"] == "done", found["reason"]
    return server.printed(job)


def submit(server: AccountServer, user: str, job: Any, folder: Path) -> list[str]:
    """The ids of a job of a user."""
    environ = {"HOME": "/root", "LOGNAME": "root", "OWN": "1"}
    return server.submit(job, user=user, folder=str(folder), environ=environ)


def test_a_command_runs_as_the_account_of_its_user(server: AccountServer) -> None:
    """With its groups only, no capabilities, and its own name whatever the client sends."""
    command = (
        "id -u; id -G; echo $HOME $USER $LOGNAME $OWN; env | grep SECRET;"
        " grep -E 'Cap(Prm|Eff)' /proc/self/status; echo to a name > /dev/stderr; pwd;"
        " ls /proc/$PPID/fd 2> /dev/null || echo closed"
    )
    with folder_of(ANN) as folder:
        lines = run(server, "ann", command, folder).splitlines()
        uid, groups = ids(ANN)
        assert (int(lines[0]), sorted(map(int, lines[1].split()))) == (uid, groups)
        assert lines[2] == f"{pwd.getpwnam(ANN).pw_dir} {ANN} {ANN} 1"
        assert [line.split()[1] for line in lines[3:5]] == ["0" * 16] * 2
        assert lines[5:] == [str(folder), "closed", "to a name"]


def test_calls_of_two_users_never_share_a_process(server: AccountServer) -> None:
    """Each call of one user is in a process of the account, which serves no other one."""

    def who(number: int) -> Any:
        import ctypes
        import multiprocessing
        import os

        from slotwise.backends.local.worker import KEYCTL

        secret = os.environ.get("SECRET_OF_ROOT")
        number = KEYCTL.get(os.uname().machine, -1)
        keys = (
            bytes(multiprocessing.current_process().authkey),
            ctypes.CDLL(None).syscall(number, 0, -3, 0),  # The session keyring.
        )
        return os.getpid(), os.getresuid(), sorted(os.getgroups()), os.getcwd(), secret, keys

    with server.client() as client:
        pools = {user: client.executor(user=user) for user in ("ann", "bob")}
        found: dict[str, list[Any]] = {"ann": [], "bob": []}
        for number, user in enumerate(["ann", "bob", "ann", "ann", "bob"]):
            found[user].append(pools[user].submit(who, number).result(60))
        for pool in pools.values():
            pool.shutdown()
    for user, account in ("ann", ANN), ("bob", BOB):
        uid, groups = ids(account)
        for _, uids, own, place, secret, _ in found[user]:
            assert (uids, own, secret) == ((uid, uid, uid), groups, None)
            assert place == pwd.getpwnam(account).pw_dir
    first, again, third = (one[0] for one in found["ann"])
    assert again == third != first  # The process stays while no other user needs its slot.
    assert not {one[0] for one in found["ann"]} & {one[0] for one in found["bob"]}
    (key, ring), (other_key, other_ring) = (found[user][0][5] for user in ("ann", "bob"))
    assert key != other_key
    assert ring != other_ring or ring == -1


PROGRAM = """
import os
from pathlib import Path
import slotwise

Path("planned").write_text(str(os.getresuid()))

class Count(slotwise.MapReduce):
    def map(self, key, line):
        yield "map", str(os.getresuid())

    def reduce(self, key, values):
        yield key, next(iter(values))
        yield "reduce", str(os.getresuid())
"""


def count(output: str) -> dict[str, Any]:
    """A MapReduce job."""
    return {"program": "app.py:Count", "inputs": "text.txt", "output": output}


def test_a_program_is_planned_and_runs_as_the_account(server: AccountServer) -> None:
    """Its output is a folder of the account, in a folder that only this may read."""
    with folder_of(ANN, {"app.py": PROGRAM, "text.txt": "a\n"}) as folder:
        (job,) = submit(server, "ann", count("out"), folder)
        assert (found := server.wait(job))["state"] == "done", found["reason"]
        uid, _ = ids(ANN)
        assert (folder / "planned").read_text() == str((uid, uid, uid))
        text = "".join(one.read_text() for one in (folder / "out").glob("part-*"))
        assert text.count(str((uid, uid, uid))) == 2
        assert {one.stat().st_uid for one in (folder / "out").iterdir()} == {uid}


def test_a_command_reads_and_writes_files_as_the_account(server: AccountServer) -> None:
    """The server is root, but a job gets neither input nor output that its user may not."""
    about = {"command": "cat text.txt", "inputs": "text.txt", "output": "out"}
    with folder_of(ANN, {"text.txt": "words\n"}) as folder:
        assert run(server, "ann", **{**about, "folder": folder}) == "words\n"
        made = folder / "out" / "task-00000.out"
        assert run(server, "ann", about["command"], folder, inputs="text.txt") == "words\n"
        assert made.read_text() == "words\n"
        assert made.stat().st_uid == (folder / "out").stat().st_uid == ids(ANN)[0]
        for wrong in {"inputs": "text.txt"}, {"output": "mine"}, {"output": "/etc/mine"}:
            with pytest.raises(InputError, match=r"text\.txt|mine|denied|not found"):
                submit(server, "bob", {"command": "true", **wrong}, folder)
        assert not Path("/etc/mine").exists()


def test_a_job_that_never_runs_leaves_no_folder(server: AccountServer) -> None:
    """A question makes none, also about the id of a job that ran, whose output stays."""
    commands, about = server.folder / "service" / "commands", {"command": "cat text.txt"}
    right, wrong = {**about, "inputs": "text.txt"}, {**about, "inputs": "missing"}
    with folder_of(ANN, {"text.txt": "words\n"}) as folder:
        run(server, "ann", folder=folder, **right, id="kept")
        before = set(commands.rglob("*"))
        more = {"folder": str(folder), "environ": {}, "user": "ann"}
        for id in {}, {"id": "asked"}, {"id": "kept"}:
            answer = server.post("/v1/what-if", {"jobs": [{**right, **id}], **more})
            assert answer["jobs"]
        for entries in [wrong], [right, wrong]:
            with pytest.raises(InputError):
                server.post("/v1/jobs", {"jobs": entries, **more})
    assert set(commands.rglob("*")) == before


def test_files_and_processes_of_others_are_out_of_reach(server: AccountServer) -> None:
    """Those of the service are, too: records, output, the socket, and the store."""

    def attack(paths: list[str], pids: list[int]) -> list[object]:
        import os
        from contextlib import suppress

        got: list[object] = []
        for one in [*paths, *pids]:
            with suppress(PermissionError):
                os.kill(one, 0) if isinstance(one, int) else os.open(one, os.O_RDONLY)
                got.append(one)
        return got

    with folder_of(ANN, {"secret": "x"}) as folder:
        os.chmod(folder, 0o755)
        os.chmod(folder / "secret", 0o600)
        printed = run(server, "ann", "echo $$ $PPID; cat secret", folder)
        assert printed.endswith("x")
        service = server.folder / "service"
        logs = [str(one) for one in service.glob("**/*") if one.suffix in (".out", ".err")]
        assert {stat.S_IMODE(os.stat(one).st_mode) for one in logs} == {0o600}
        assert server.process is not None
        (job,) = submit(server, "ann", {"command": "echo $$ > pid; sleep 1000"}, folder)
        # The worker of this command holds the only slot, so another server asks.
        until(lambda: (folder / "pid").exists() and (folder / "pid").read_text())
        pids = [int((folder / "pid").read_text()), server.process.pid]
        with serving() as other, other.client() as client, client.executor(user="bob") as bob:
            paths = [str(folder / "secret"), str(service), str(service / "socket"), *logs]
            assert bob.submit(attack, paths, pids).result(60) == []
        server.post(f"/v1/jobs/{job}/cancel")
        server.wait(job)


def test_no_work_runs_as_root_or_nobody(server: AccountServer) -> None:
    """Neither do jobs of a user whom the configuration does not have."""
    for account, why in (
        ("root", "is that of root"),
        ("slotwise-no-such", "there is no account"),
    ):
        with pytest.raises(InputError, match=why):
            Settings(run_as=True, users={"eve": User("eve", account)})
    for job in {"command": "true"}, {"phases": [{"name": "a", "work": 1, "tasks": 1}]}:
        with pytest.raises(InputError, match="has no account"):
            submit(server, "root", job, Path("/"))


def test_a_command_outlives_the_server_as_its_account() -> None:
    """The next server takes its end and its output, and gives both to the account."""
    with folder_of(ANN) as folder, serving() as server:
        command = "id -u > who; until [ -e go ]; do sleep 0.02; done; id -u; echo e >&2"
        (job,) = submit(server, "ann", {"command": command, "output": "out"}, folder)
        until(lambda: (folder / "who").exists() and (folder / "who").read_text())
        server.restart(signal.SIGKILL)
        (folder / "go").touch()
        found = server.wait(job)
        assert (found["state"], found["restarts"]) == ("done", 0)
        made = folder / "out" / "task-00000.out"
        assert made.read_text() == f"{ids(ANN)[0]}\n"
        assert made.stat().st_uid == ids(ANN)[0]


LINKS = """
for place in out/_temporary/slotwise-*; do
  for name in 0-task-00000.out 1-task-00000.out 0-task-00000.err task-00000.out; do
    ln -s "$1" "$place/$name"
  done
  ls -l "$place"
done
"""


def test_links_that_a_user_plants_lead_root_nowhere(server: AccountServer) -> None:
    """Neither in the folder of its output, nor in place of it, nor before the commit."""
    uid, _ = ids(ANN)
    with folder_of(ANN) as folder, folder_of("root", {"file": "of root"}) as of_root:
        words = ["sh", "-c", LINKS, "plant", str(of_root / "file")]
        assert "-> " in run(server, "ann", words, folder, output="out")
        assert not (folder / "out" / "task-00000.out").is_symlink()
        for name in "_temporary", "_SUCCESS", "":
            place = folder / f"to-{name}"
            if name:
                place.mkdir()
                os.chown(place, uid, uid)
            os.symlink(of_root, place / name if name else place)
            with suppress(InputError):
                job = {"command": "true", "output": place.name, "overwrite": True}
                (job_of,) = submit(server, "ann", job, folder)
                server.wait(job_of)
        assert [one.name for one in of_root.iterdir()] == ["file"]
        assert (of_root / "file").read_text() == "of root"


LIES = """
from slotwise.service.planned import hosting
described = hosting.HostedJob._described
def lie(self):
    answer = described(self)
    answer.value.update({})
    answer.value["own"] = ["output_files", "describe", "begins_at"]
    return answer
hosting.HostedJob._described = lie
hosting.HostedJob._output_files = lambda self, *a: hosting.Answer(["{place}", "{place}"])
"""


@pytest.mark.parametrize(
    "claim",
    [
        '{"job": {**answer.value["job"], "id": "another"}}',
        '{"job": {**answer.value["job"], "user": "bob"}}',
        '{"job": {**answer.value["job"], "pool": "other"}}',
        '{"done_before": {"map": [10**9]}}',
        '{"known_as": {}}',
        '{"ending_seconds": float("nan")}',
        '{"outputs": [["x"]]}',
        '{"more": [0] * (1 << 25)}',
        '{"sizes": {}, "job": {**answer.value["job"], "phases": ['
        '{**one, "count": 10**8, "work": 1.0} for one in answer.value["job"]["phases"]]}}',
    ],
)
def test_what_a_planning_process_claims_is_checked(server: AccountServer, claim: str) -> None:
    """Code of a user runs there: it may be of another job, user or kind. Others run on."""
    code = PROGRAM + LIES.replace("{}", claim).replace("{place}", "/nowhere")
    with folder_of(ANN, {"app.py": code, "text.txt": "a\n"}) as folder:
        with pytest.raises(InputError):
            submit(server, "ann", count("out"), folder)
        assert run(server, "bob", "id -un", Path("/")) == f"{BOB}\n"


def test_the_server_opens_no_file_that_a_planning_process_names(server: AccountServer) -> None:
    """Otherwise what root may read would be among the output of the job."""
    with folder_of("root", {"file": "of root"}) as of_root:
        code = PROGRAM + LIES.replace("{}", "{}").replace("{place}", str(of_root / "file"))
        with folder_of(ANN, {"app.py": code, "text.txt": "a\n"}) as folder:
            (job,) = submit(server, "ann", count("out"), folder)
            server.wait(job)
            assert "of root" not in server.printed(job)
        assert (of_root / "file").stat().st_nlink == 1


def test_a_worker_that_is_taken_over_ends_only_its_own_task(server: AccountServer) -> None:
    """It writes what it likes to the memory and the channel that it shares with the server."""

    def garble(head: bool) -> None:
        import gc
        import os
        import time

        of = {type(one).__name__: one for one in gc.get_objects() if _is_slotwise(one)}
        word = of["Server"]._word
        word[3] = word[4] = word[6] = float("inf")
        word[2] = word[5] = of["Server"]._number
        time.sleep(0.3)
        if head:
            of["Link"].write(99, float("nan"), -1.0, b"", 2**64 - 1)
            time.sleep(60)
        os.kill(os.getpid(), 9)

    def _is_slotwise(one: object) -> bool:
        return type(one).__module__ == "__main__" and type(one).__name__ in ("Server", "Link")

    with server.client() as client:
        resources = {"memory": "100MB"}
        with client.executor(user="ann", resources=resources, attempts=1) as ann:
            for head in True, False:
                assert ann.submit(garble, head).exception(60) is not None
    assert run(server, "bob", "id -un", Path("/")) == f"{BOB}\n"


def test_the_error_of_a_call_is_no_bomb(server: AccountServer) -> None:
    """It has a few bytes, and its text would have a million million characters."""

    def raises(mark: Path) -> None:
        import pickle

        from slotwise.backends.local import call_stream

        if mark.exists():
            mark.unlink()
            os._exit(1)  # The client, which is of the user, gets no bomb.
        mark.touch()
        text: object = "a"
        for _ in range(40):
            text = (text, text)
        call_stream.failure = lambda error: pickle.dumps((b"", text))
        raise ValueError

    with folder_of(ANN) as folder, server.client() as client:
        with client.executor(user="ann", attempts=2) as ann:
            error = ann.submit(raises, folder / "mark").exception(60)
        assert not (folder / "mark").exists(), error
    assert run(server, "bob", "id -un", Path("/")) == f"{BOB}\n"


@pytest.mark.parametrize("change", ["mode", "owner", "parent"])
def test_a_folder_that_others_can_change_is_refused(change: str, tmp_path: Path) -> None:
    """A user could read what is kept there, or put another folder in its place."""
    folder = tmp_path / "parent" / "service"
    folder.mkdir(parents=True, mode=0o700)
    Settings(run_as=True).check_run_as(folder)
    changes: dict[str, Callable[[], None]] = {
        "mode": lambda: folder.chmod(0o750),
        "owner": lambda: os.chown(folder, 1, 1),
        "parent": lambda: folder.parent.chmod(0o777),
    }
    changes[change]()
    with pytest.raises(InputError, match="of root alone"):
        Settings(run_as=True).check_run_as(folder)
    with pytest.raises(InputError, match="this machine only"):
        Settings(run_as=True, dask="tcp://x:1").check_run_as(folder)


def test_an_account_that_cannot_run_the_interpreter_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its commands would run, and nobody would know how they ended."""
    folder, closed = tmp_path / "service", tmp_path / "closed"
    folder.mkdir(mode=0o700)
    closed.mkdir(mode=0o700)
    (closed / "python").symlink_to("/bin/sh")
    monkeypatch.setattr(sys, "executable", str(closed / "python"))
    settings = Settings(run_as=True, users={"eve": User("eve", ANN)})
    with pytest.raises(InputError, match=f"{ANN!r} cannot run {closed}"):
        settings.check_run_as(folder)


def test_an_answer_that_comes_in_drops_is_late() -> None:
    """The time is that of the whole answer, so that no process can hold up the loop."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        stream, is_over = TimedStream(ours), threading.Event()
        theirs.send((1000).to_bytes(4, "little"))  # The length of a header.

        def drip() -> None:
            while not is_over.wait(0.01):
                theirs.send(b" ")

        thread = threading.Thread(target=drip)
        thread.start()
        stream.until = time.monotonic() + 0.3
        with pytest.raises(TimeoutError):
            next(frames(stream))
        is_over.set()
        thread.join()


def test_the_loop_waits_less_for_an_account_that_has_let_it_wait() -> None:
    """Others are not concerned."""
    waits, ann, bob = LoopWaits(), Account.named(ANN), Account.named(BOB)
    found = []
    for _ in range(6):
        found.append(waits.seconds(ann))
        waits.has_waited(ann, found[-1])
    assert found == pytest.approx([10, 2.5, 0.625, 0.15625, 0.0390625, 0.02], rel=0.1)
    assert waits.seconds(bob) == 10


def test_root_ends_only_processes_of_the_account() -> None:
    """The number of one that has ended may be that of a process of another user."""
    uid = ids(ANN)[0]
    ours = subprocess.Popen(["sleep", "1000"], user=uid, cwd="/")
    other = subprocess.Popen(["sleep", "1000"], user=ids(BOB)[0], cwd="/")
    try:
        send_to_own([ours.pid, other.pid, 2**22 + 1], signal.SIGKILL, uid)
        assert ours.wait(60) == -signal.SIGKILL
        assert other.poll() is None
        send_to_own([other.pid], signal.SIGTERM, None)
        assert other.wait(60) == -signal.SIGTERM
    finally:
        for one in (ours, other):
            one.kill()
            one.wait()


def test_a_process_that_has_changed_its_account_keeps_nothing_of_root(tmp_path: Path) -> None:
    """Neither rights, nor the folder that it was in; and others cannot read it."""
    read, write = os.pipe()
    (child := os.fork()) or _report(write, tmp_path)
    os.close(write)
    with open(read) as file:
        found = json.load(file)
    os.waitpid(child, 0)
    uid, groups = ids(ANN)
    assert found == [[uid] * 3, groups, "/", "closed", "no way back"]


def _report(write: int, folder: Path) -> NoReturn:
    """What a process of an account has, as JSON."""
    os.chdir(folder)
    Account.named(ANN).become()
    found: list[Any] = [os.getresuid(), sorted(os.getgroups()), os.getcwd()]
    with suppress(PermissionError):
        Path("/proc/self/environ").read_bytes()  # It belongs to root now.
        found.append("open")
    found.append("closed")
    with suppress(PermissionError):
        os.setuid(0)
    found.append("root" if os.getuid() == 0 else "no way back")
    os.write(write, json.dumps(found).encode())
    os._exit(0)
