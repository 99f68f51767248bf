"""Calls `ssh-keygen -Y`: without a shell, with a time limit, and with selected variables."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final

from autopipe.errors import SetupError

PROGRAM: Final = "ssh-keygen"

_SECONDS: Final = 600.0
"""Time limit: it may read gigabytes, or wait for a touch of a hardware key."""

_CHECKING: Final = ("PATH", "TZ")
"""Environment variables for verification; times in a file of signers are local."""

_SIGNING: Final = (
    *_CHECKING, "HOME", "TERM", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS", "SSH_AUTH_SOCK", "SSH_ASKPASS", "SSH_ASKPASS_REQUIRE",
    "SSH_SK_PROVIDER", "SSH_SK_HELPER", "SSH_PKCS11_HELPER",
)  # fmt: skip
"""Environment variables for signing, which may need an agent, a hardware key or a prompt."""

_UNFIT: Final = ("unknown option", "illegal option", "Unsupported operation", "No user exists")
"""Messages that blame the installation instead of the signature."""


@dataclass(frozen=True, slots=True)
class KeygenResult:
    """The result of a call."""

    code: int
    output: str
    """Its standard output."""
    errors: str
    """Its standard error, unless that is a terminal."""


def check_signature(arguments: Sequence[str], content: BinaryIO | None = None) -> KeygenResult:
    """Verify a signature of `content`, read from its beginning. Raises SetupError."""
    if content is not None:
        content.seek(0)
    return _run_keygen(arguments, content or subprocess.DEVNULL, subprocess.PIPE, _CHECKING)


def make_signature(arguments: Sequence[str]) -> KeygenResult:
    """Sign a file; on a terminal it may prompt. Raises SetupError."""
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    return _run_keygen(arguments, None, None if is_terminal else subprocess.PIPE, _SIGNING)


def _run_keygen(
    arguments: Sequence[str],
    stdin: BinaryIO | int | None,
    stderr: int | None,
    variables: Sequence[str],
) -> KeygenResult:
    program = shutil.which(PROGRAM)
    if program is None:
        raise SetupError(f"{PROGRAM} is not on the PATH; install OpenSSH 8.9 or later")
    environment = {name: os.environ[name] for name in variables if name in os.environ}
    try:
        completed = subprocess.run(  # noqa: S603
            [program, *arguments], stdin=stdin, stdout=subprocess.PIPE, stderr=stderr,
            env={**environment, "LC_ALL": "C"}, timeout=_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise SetupError(f"{PROGRAM} did not end within {_SECONDS:g} s") from None
    except (OSError, ValueError) as error:
        raise SetupError(f"{program}: {error}") from error
    output, errors = (
        (text or b"").decode(errors="surrogateescape")
        for text in (completed.stdout, completed.stderr)
    )
    if completed.returncode < 0:
        raise SetupError(f"{PROGRAM} was killed by signal {-completed.returncode}")
    if completed.returncode and any(words in errors for words in _UNFIT):
        raise SetupError(f"{PROGRAM} cannot be used: {errors.strip().splitlines()[0]}")
    return KeygenResult(completed.returncode, output, errors)
