"""The command `slotwise submit`: its options, and what it sends to the server.

It has a parser of its own, for two reasons: the words of a command must not be taken for
options, and the modules that parse other commands take longer to load than a submission takes.
The table of options also makes the help.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from slotwise.core.errors import InputError, SlotwiseError, suggestion

if TYPE_CHECKING:
    from slotwise.service.clients.transport import Transport

HELP = """Submit a command, or all jobs of a workload file, to the server.

    The first word that is not an option begins the command; `--` before it makes that clear. A
    single word with spaces or other signs of a shell runs in `/bin/sh`, as the words after
    `--shell` do. The id is printed, alone if stdout is not a terminal.

    With `--wait` or `--follow` the exit code is that of `slotwise wait`.

    `slotwise submit -- python train.py --depth 8`

    `slotwise submit --pool team --after 17 --memory 8GiB --deadline 17:00 -- ./evaluate`

    `slotwise submit --array 100 'convert in-$SLOTWISE_TASK.png out-$SLOTWISE_TASK.jpg'`

    `slotwise submit jobs.yaml --follow`
    """

SHELL_SIGNS = re.compile(r"[\s|&;<>()$`\\\"'*?\[\]#~]")
"""What only a shell understands in a command of one word."""

_OF_ENTRY = re.compile(r"^jobs\[0\]\.(\w+)")
"""The place of a value in the entry of a command, in messages of the server."""

MIB = 1024**2
"""The bytes from which an amount of memory without a unit is taken for one."""

INTERRUPTED = 130
"""The exit code after Ctrl-C."""

RESTORE_SECONDS = 30.0
"""How long a server that has just been started may refuse jobs."""

WORKLOAD_ENDINGS = (".yaml", ".yml", ".json")

MEANT = {
    **dict.fromkeys(("-p", "--partition", "--queue", "--group"), "--pool"),
    **dict.fromkeys(("-c", "--cpus", "--cores", "--cpus-per-task", "-j"), "--slots"),
    **dict.fromkeys(("-d", "--dependency", "--depends-on"), "--after"),
    **dict.fromkeys(("-t", "--time", "--timeout"), "--time-limit"),
    **dict.fromkeys(("--mem", "-m"), "--memory"),
    **dict.fromkeys(("--gpus", "--gres"), "--gpu"),
    **dict.fromkeys(("-D", "--chdir", "--working-directory"), "--cwd"),
    "--retries": "--attempts",
    "--idempotency-key": "--key",
}
"""Options of other tools, and those that do the same."""


class SubmitOption(NamedTuple):
    """An option: `kind` is text, list, flag, whole or number."""

    names: tuple[str, ...]
    kind: str
    metavar: str
    help: str

    @property
    def key(self) -> str:
        """The name of its value."""
        return self.names[-1].strip("-").replace("-", "_")


OPTIONS = tuple(
    SubmitOption(tuple(names.split()), kind, metavar, about)
    for names, kind, metavar, about in (
        ("--name --id", "text", "ID", "Id of the job [default: a number]."),
        ("--after", "list", "ID", "Begin when this job is done; may be repeated."),
        ("--after-failed", "text", "cancel|run", "What to do if a job before it fails."),
        (
            "--array",
            "text",
            "N|A-B",
            "N tasks, from 0; or tasks whose $SLOTWISE_TASK is from A to B.",
        ),
        ("--pool", "text", "POOL", "Pool of the job."),
        ("--priority", "text", "NAME", "very_high, high, normal, low or very_low."),
        ("--weight", "number", "NUMBER", "Weight in objectives and shares."),
        ("--deadline", "text", "TIME", "A time such as 17:00, a date and time, or in 2h."),
        ("--promise", "text", "TIME", "Accept it only if it can be done by then."),
        ("--user", "text", "NAME", "User of the job [default: your account]."),
        ("--slots", "whole", "N", "Slots of each task."),
        ("--slots-max", "whole", "N", "Maximum of slots at once."),
        ("--gpu", "number", "N", "GPUs of each task."),
        ("--memory", "text", "SIZE", "Memory of each task, such as 8GiB."),
        ("--resources", "text", "AMOUNTS", "Other resources: license=1,disk=20."),
        ("--attempts", "whole", "N", "Maximum of attempts of a task [default: 4]."),
        ("--retry-delay", "text", "SECONDS", "Wait before another attempt, as in 30s."),
        ("--time-limit", "text", "SECONDS", "Stop an attempt after this time, as in 2h."),
        ("--time-requested", "text", "SECONDS", "The most it should take, for backfilling."),
        ("--no-retry", "list", "CODE", "An exit code that is not retried; may be repeated."),
        ("--no-restart", "flag", "", "Never run it again after the end of a server."),
        ("--output", "text", "FOLDER", "Folder for stdout and stderr of the tasks."),
        ("--cwd", "text", "FOLDER", "Folder in which it runs [default: this one]."),
        (
            "--env",
            "list",
            "NAME[=VALUE]",
            "A variable beside those of this shell; of them, too, on a network. Repeatable.",
        ),
        ("--key", "text", "TEXT", "Submit only once, however often this is repeated."),
        ("--shell", "flag", "", "Run the words as one line of /bin/sh."),
        ("--hold", "flag", "", "Do not begin before `slotwise release`."),
        ("--dry-run", "flag", "", "Only show when it would start and end, and who is later."),
        ("-w --wait", "flag", "", "Wait for the end; exit with the code of the job."),
        ("-f --follow", "flag", "", "Print what it prints, then as --wait."),
        ("--json", "flag", "", "Print JSON on stdout and nothing else."),
        (
            "--server",
            "text",
            "URL",
            "unix:PATH or https://HOST:PORT [default: $SLOTWISE_SERVER, or your own server].",
        ),
    )
)

BY_NAME = {name: option for option in OPTIONS for name in option.names}

AS_STATED = (
    *("id", "pool", "priority", "weight", "after", "after_failed"),
    *("slots", "slots_max", "attempts", "retry_delay", "time_limit", "time_requested"),
)
"""The options that are keys of an entry of a workload file, with the same values."""


class SubmittedWords(NamedTuple):
    """The words of the command line: options by key, a workload file or None, a command."""

    options: dict[str, Any]
    file: str | None
    command: list[str]


def parse_words(words: Sequence[str]) -> SubmittedWords | None:
    """The options before and after a workload file, or before a command. InputError.

    None if they ask for the help.
    """
    options: dict[str, Any] = {}
    file, command = None, list[str]()
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            command = rest
            break
        if not word.startswith("-") or word == "-":
            if file is None and _is_workload(word):
                file = word
                continue
            command = [word, *rest]
            break
        if word == "--help":
            return None
        name, has_value, value = word.partition("=")
        option = BY_NAME.get(name)
        if option is None:
            hint = suggestion(
                name, BY_NAME, "--help lists them, and -- begins a command", MEANT
            )
            raise InputError(f"`submit` has no option {name}; {hint}")
        if option.kind == "flag":
            if has_value:
                raise InputError(f"{name} takes no value; write only {name}")
            options[option.key] = True
            continue
        if not has_value:
            if not rest:
                raise InputError(f"{name} needs a value; add {option.metavar}")
            value = rest.pop(0)
        _state(options, option, value)
    if options.keys() >= {"json", "follow"}:
        raise InputError("--json prints nothing else; leave out --follow, or write --wait")
    if "dry_run" in options and options.keys() & {"wait", "follow", "hold"}:
        raise InputError("--dry-run submits nothing; leave out --wait, --follow and --hold")
    if file is not None and command:
        raise InputError(
            f"{file} is a workload file, and a command follows; submit one of both"
        )
    if file is None and not command:
        raise InputError(
            "nothing to submit; add a command, as in: slotwise submit -- echo hello"
        )
    return SubmittedWords(options, file, command)


def _is_workload(word: str) -> bool:
    if not word.endswith(WORKLOAD_ENDINGS):
        return False
    if not os.path.exists(word):
        raise InputError(f"workload file {word!r} does not exist; name another one")
    return True


def _state(options: dict[str, Any], option: SubmitOption, value: str) -> None:
    """Note the value of an option. InputError for one that is not of its kind."""
    name = option.names[-1]
    if option.kind == "list":
        options.setdefault(option.key, []).append(value)
        return
    kinds: dict[str, Callable[[str], Any]] = {"whole": int, "number": _number, "text": str}
    try:
        options[option.key] = kinds[option.kind](value)
    except ValueError:
        what = "a whole number" if option.kind == "whole" else "a number"
        raise InputError(f"{name} is {value!r}; expected {what}") from None


def _number(text: str) -> int | float:
    return int(text) if text.isdecimal() else float(text)


def entry_of(
    options: Mapping[str, Any], words: Sequence[str], *, is_network: bool = False
) -> dict[str, Any]:
    """The entry of a command, as in a workload file. InputError for a wrong option.

    `is_network`: relative paths are for the server, and begin at the home of the user there.
    """
    entry: dict[str, Any] = {key: options[key] for key in AS_STATED if key in options}
    for key in ("retry_delay", "time_limit", "time_requested"):
        if key in entry:
            entry[key] = _seconds_or_text(entry[key])
    entry["command"] = _command(words, is_shell="shell" in options)
    if "no_restart" in options:
        entry["restart"] = False
    if "array" in options:
        entry["tasks"], first = _tasks(options["array"])
        if first:
            entry["first_task"] = first
    for key in ("deadline", "promise"):
        if key in options:
            entry[key] = {"at": _instant(f"--{key}", options[key])}
    if resources := _resources(options):
        entry["resources"] = resources
    if "no_retry" in options:
        entry["no_retry"] = [_code(text) for text in options["no_retry"]]
    if "env" in options:
        entry["env"] = dict(map(_variable, options["env"]))
    if "cwd" in options:
        entry["cwd"] = os.path.abspath(options["cwd"])
    if (output := options.get("output")) is not None:
        entry["output"] = output if is_network else os.path.abspath(output)
    return entry


def _command(words: Sequence[str], *, is_shell: bool) -> str | list[str]:
    if is_shell:
        return " ".join(words)
    if len(words) == 1 and SHELL_SIGNS.search(words[0]) and not os.path.exists(words[0]):
        return words[0]
    return list(words)


def _tasks(text: str) -> tuple[int, int]:
    """The number of tasks of `--array`, and the number of the first: of N, or of A-B."""
    first, dash, last = text.partition("-")
    if not first.isdecimal() or (dash and not last.isdecimal()):
        raise InputError(
            f"--array is {text!r}; expected a number of tasks, or A-B, as in 1-100"
        )
    if not dash:
        return int(first), 0
    if int(last) < int(first):
        raise InputError(f"--array is {text!r}; the last number is before the first")
    return int(last) - int(first) + 1, int(first)


def _resources(options: Mapping[str, Any]) -> dict[str, Any]:
    """The amounts of --gpu, --memory and --resources."""
    found: dict[str, Any] = {}
    if "resources" in options:
        from slotwise.cli.parsing import parse_resources

        found |= parse_resources(options["resources"]) or {}
    for name in {"gpu", "memory"} & options.keys():
        from slotwise.core.resources import requested

        if name in found:
            raise InputError(f"--{name} and --resources both state {name}; leave one out")
        stated = options[name]
        found[name] = _memory(stated) if name == "memory" else stated
        requested(f"--{name}", {name: found[name]})  # The server would name --resources.
    return found


def _memory(text: str) -> int | str:
    """A size, or bytes. InputError for a number without a unit, and what begins as no size."""
    if not text[:1].isdecimal():
        raise InputError(f"--memory is {text!r}; expected a size such as 512MB or 8GiB")
    if not text.isdecimal():
        return text
    if int(text) < MIB:
        raise InputError(f"--memory is {text!r}, in bytes; add a unit, as in {text}GiB")
    return int(text)


def _seconds_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text  # A duration, which the server checks.


def _code(text: str) -> int:
    if not text.isdecimal():
        raise InputError(f"--no-retry is {text!r}; expected an exit code, a whole number")
    return int(text)


def _variable(text: str) -> tuple[str, str]:
    name, is_stated, value = text.partition("=")
    if name and not is_stated and name in os.environ:
        return name, os.environ[name]
    if not name or not is_stated:
        raise InputError(
            f"--env is {text!r}; expected NAME=VALUE, or the name of a variable of this shell"
        )
    return name, value


def _instant(what: str, text: str) -> float:
    """The Unix seconds of an instant that is stated in any form."""
    import time

    from slotwise.workload.dates import seconds_until

    return time.time() + (float(text) if text.isdecimal() else float(seconds_until(what, text)))


def request_of(submitted: SubmittedWords, *, is_network: bool = False) -> dict[str, Any]:
    """What is sent to the server. InputError for wrong options, or a wrong workload file.

    A server on a network gets neither the folder nor the environment of this shell.
    """
    options = submitted.options
    if submitted.file is None:
        folder = _find_folder()
        jobs = [entry_of(options, submitted.command, is_network=is_network)]
    else:
        from slotwise.cli.submitted_file import entries_of

        jobs, folder = entries_of(submitted.file, options)
    place = {} if is_network else {"folder": folder, "environ": dict(os.environ)}
    return {
        **place,
        "jobs": jobs,
        "key": options.get("key"),
        "user": options.get("user"),
        "hold": "hold" in options,
    }


def _find_folder() -> str:
    """The folder of the shell. InputError if it was removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise InputError(
            "the folder of this shell no longer exists; change to another one"
        ) from None


def submit(submitted: SubmittedWords) -> int:
    """Submit a command or a workload file; the exit code."""
    from slotwise.service.clients.transport import Transport

    options = submitted.options
    transport = Transport(options.get("server"))
    try:
        is_network = transport.place.is_network
        body = request_of(submitted, is_network=is_network)
        if "dry_run" in options:
            from slotwise.cli.what_if import ask, show_answer

            show_answer(ask(transport, body), as_json="json" in options)
            return 0
        jobs = posted(transport, body)
    except InputError as error:
        if submitted.file is not None:
            raise
        # Name options as they are on the command line.
        raise InputError(_OF_ENTRY.sub(_as_option, str(error))) from None
    _show(jobs, options)
    if not options.keys() & {"wait", "follow"}:
        return 0
    from slotwise.cli.application import first_signal_interrupts, show_message
    from slotwise.cli.following import exit_code, follow_jobs, left_to_server

    ids = [str(job["id"]) for job in jobs]
    try:
        with first_signal_interrupts():
            found = follow_jobs(transport, ids, prints="follow" in options)
    except KeyboardInterrupt:
        show_message(f"slotwise: {left_to_server(ids)}")
        return INTERRUPTED
    return max(map(exit_code, found))


def _as_option(found: re.Match[str]) -> str:
    key = "array" if found[1] == "tasks" else found[1]
    return f"--{key.replace('_', '-')}"


def posted(transport: Transport, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The jobs of a submission. Without a server it offers to start one, on a terminal."""
    from slotwise.service.clients.transport import NoServerError

    def post() -> list[dict[str, Any]]:
        jobs: list[dict[str, Any]] = transport.post("/v1/jobs", body)["jobs"]
        return jobs

    try:
        return post()
    except NoServerError as error:
        is_asked = sys.stdin.isatty() and sys.stderr.isatty() and _is_own(transport)
        if not is_asked or not _answered(f"slotwise: {error}\nstart one now? [Y/n] "):
            raise
    return _with_new_server(post)


def _is_own(transport: Transport) -> bool:
    """Whether `slotwise serve` starts the server that was asked."""
    from slotwise.service.wire import server_place

    return transport.place.path is not None and transport.place == server_place()


def _answered(question: str) -> bool:
    """Ask on the terminal; yes is the default."""
    sys.stderr.write(question)
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("", "y", "yes")


def _with_new_server(post: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Start the user's server in the background, and post when it accepts jobs."""
    import subprocess
    import time

    from slotwise.service.clients.transport import ServerClosedError

    words = [sys.executable, "-m", "slotwise", "serve", "--background"]
    if subprocess.run(words, stdin=subprocess.DEVNULL, check=False).returncode:
        raise SlotwiseError("nothing was submitted, because the server did not start")
    until = time.monotonic() + RESTORE_SECONDS
    while True:
        try:
            return post()
        except ServerClosedError:  # It reads the jobs of earlier servers first.
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def _show(jobs: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> None:
    """Print the ids, with a sentence on a terminal; on stderr if the output of jobs follows."""
    ids = [str(job["id"]) for job in jobs]
    stated = options.get("id")
    if stated is not None and ids != [stated] and "json" not in options:
        key = options.get("key")
        keyed = f", or an earlier submission the key {key!r}" if key else ""
        sys.stderr.write(
            f"slotwise: an earlier job has the id {stated!r}{keyed};"
            f" that of this one is {ids[0]!r}\n"
        )
    if "json" in options:
        import json

        print(json.dumps({"jobs": jobs}), flush=True)
        return
    to = sys.stderr if "follow" in options else sys.stdout
    if not to.isatty():
        print("\n".join(ids), file=to, flush=True)
    elif len(ids) == 1:
        more = "" if "follow" in options else f"; `slotwise logs -f {ids[0]}` follows it"
        print(f"job {ids[0]} is {jobs[0]['state']}{more}", file=to, flush=True)
    else:
        print(f"{len(ids)} jobs are submitted: {', '.join(ids)}", file=to, flush=True)


def quick(words: Sequence[str]) -> int | None:
    """Submit a command without the modules of other commands; the exit code.

    None if that is not enough: for the help, and for a workload file.
    """
    try:
        submitted = parse_words(words)
        if submitted is None or submitted.file is not None:
            return None
        return submit(submitted)
    except SlotwiseError as error:
        from slotwise.cli.application import show_message

        show_message(f"slotwise: {error}", style="red")
        return error.exit_code
