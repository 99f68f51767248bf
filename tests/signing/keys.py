"""Keys of OpenSSH, made for the tests."""

import os
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

from autopipe.lock import file
from autopipe.lock.document import Lock
from autopipe.lock.text import format_lock
from tests.lock.examples import LOCK

NEEDED = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is missing")
"""The paths that only say what is missing or wrong are tested without it, with a fake."""


def keygen(*arguments: object) -> None:
    subprocess.run(["ssh-keygen", "-q", *map(str, arguments)], check=True, capture_output=True)


def key(folder: Path, name: str, passphrase: str = "") -> Path:
    """Make a key pair, and return its private part."""
    path = folder / name
    keygen("-t", "ed25519", "-N", passphrase, "-C", name, "-f", path)
    return path


def public(path: Path) -> str:
    return path.with_name(f"{path.name}.pub").read_text().strip()


def signers(folder: Path, *lines: str) -> Path:
    """Write a file of signers, and return it."""
    path = folder / "signers"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def lock(folder: Path, **fields: object) -> Path:
    """Write a lock with its records, and return it."""
    records = '{"ended": "all trials are spent", "seconds": 1, "session": "ab", "version": 1}\n'
    found: Lock = LOCK.model_copy(
        update={"records": sha256(records.encode()).hexdigest(), **fields}
    )
    path = folder / "demo.lock"
    file.write_lock(path, format_lock(found), records)
    return path


def fake(folder: Path, script: str) -> dict[str, str]:
    """Put a program in the place of ssh-keygen, and return the environment that finds it alone."""
    tools = folder / "tools"
    tools.mkdir()
    program = tools / "ssh-keygen"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {**os.environ, "PATH": str(tools)}
