"""The tokens of this user for servers on a network, which `slotwise login` stores."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import NamedTuple

from slotwise.core.errors import InputError, SlotwiseError

TOKEN_VARIABLE = "SLOTWISE_TOKEN"
"""The environment variable with a token, which goes before stored ones."""


class Credential(NamedTuple):
    """A token, and a file with the authorities for TLS; None: those of the system.

    variable  the environment variable that states it, if it is not stored
    """

    token: str
    ca: str | None = None
    variable: str = ""


def tokens_file() -> Path:
    """The file with the tokens."""
    stated = os.environ.get("XDG_CONFIG_HOME", "")
    folder = stated if os.path.isabs(stated) else os.path.expanduser("~/.config")
    return Path(folder, "slotwise", "tokens.toml")


def credential_for(url: str) -> Credential:
    """The token for a server. SlotwiseError if there is none."""
    stored = _stored().get(url)
    if token := os.environ.get(TOKEN_VARIABLE, "").strip():
        return Credential(token, None if stored is None else stored.ca, TOKEN_VARIABLE)
    if stored is None:
        raise SlotwiseError(
            f"no token for {url}; `slotwise login {url}` stores one, or set {TOKEN_VARIABLE}"
        )
    return stored


def store_credential(url: str, credential: Credential | None) -> bool:
    """Store a token in a file that only this user can read; None removes it.

    Returns whether there was one. InputError if the file cannot be read or written.
    """
    stored, path = _stored(), tokens_file()
    had = stored.pop(url, None) is not None
    if credential is not None:
        stored[url] = credential
    text = "\n".join(_entry(*one) for one in sorted(stored.items()))
    made = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with open(file, "w", encoding="utf-8") as output:
            output.write(text)
        os.replace(made, path)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from None
    return had


def _entry(url: str, credential: Credential) -> str:
    """A table of the file. Strings of JSON are strings of TOML."""
    ca = "" if credential.ca is None else f"ca = {json.dumps(credential.ca)}\n"
    return f"[{json.dumps(url)}]\ntoken = {json.dumps(credential.token)}\n{ca}"


def _stored() -> dict[str, Credential]:
    path = tokens_file()
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise InputError(f"{path} is not TOML: {error}; correct or remove it") from None
    return {
        url: Credential(one["token"], one.get("ca"))
        for url, one in data.items()
        if isinstance(one, dict) and isinstance(one.get("token"), str)
    }
