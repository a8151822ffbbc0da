"""Certificates for tests of connections with TLS."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from ssl import Purpose, SSLContext

import pytest

from slotwise.jobs.hosts.auth import tls_context


def make_certificate(folder: Path) -> Mapping[str, str]:
    """A certificate that is its own authority: its files, as an agent is given them."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=slotwise", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    return {"ca_file": str(cert), "cert": str(cert), "key": str(key)}


@cache
def contexts(authority: str) -> tuple[SSLContext, SSLContext]:
    """What those who listen have, and those who connect, with a certificate of an authority."""
    with tempfile.TemporaryDirectory() as folder:
        given = make_certificate(Path(folder))
        texts = {name: Path(path).read_text() for name, path in given.items()}
    return tls_context(texts, Purpose.CLIENT_AUTH), tls_context(texts, Purpose.SERVER_AUTH)
