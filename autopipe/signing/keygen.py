"""Calls `ssh-keygen -Y`: no shell, a bounded time, and an environment of what it needs."""

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
"""How long it may take: to read gigabytes, or until somebody has touched a key."""

_CHECKING: Final = ("PATH", "TZ")
"""Variables that it gets; times in a file of signers are local ones."""

_SIGNING: Final = (
    *_CHECKING, "HOME", "TERM", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS", "SSH_AUTH_SOCK", "SSH_ASKPASS", "SSH_ASKPASS_REQUIRE",
    "SSH_SK_PROVIDER", "SSH_SK_HELPER", "SSH_PKCS11_HELPER",
)  # fmt: skip
"""Likewise, where it may have to ask an agent, a hardware key or a person."""

_UNFIT: Final = ("unknown option", "illegal option", "Unsupported operation", "No user exists")
"""What it says where not the signature is at fault, but the installation."""


@dataclass(frozen=True, slots=True)
class Done:
    """How it ended."""

    code: int
    said: str
    """What it printed on stdout."""
    why: str
    """What it complained of, if that went to us and not to a terminal."""


def check_signature(arguments: Sequence[str], content: BinaryIO | None = None) -> Done:
    """Have it look at a signature of `content`, from its beginning. Raises SetupError."""
    if content is not None:
        content.seek(0)
    return _run_keygen(arguments, content or subprocess.DEVNULL, subprocess.PIPE, _CHECKING)


def make_signature(arguments: Sequence[str]) -> Done:
    """Have it sign; on a terminal it asks what it has to ask. Raises SetupError."""
    seen = sys.stderr is not None and sys.stderr.isatty()
    return _run_keygen(arguments, None, None if seen else subprocess.PIPE, _SIGNING)


def _run_keygen(
    arguments: Sequence[str],
    stdin: BinaryIO | int | None,
    stderr: int | None,
    variables: Sequence[str],
) -> Done:
    program = shutil.which(PROGRAM)
    if program is None:
        raise SetupError(f"{PROGRAM} is not on the PATH; install OpenSSH 8.9 or later")
    passed = {name: os.environ[name] for name in variables if name in os.environ}
    try:
        done = subprocess.run(  # noqa: S603
            [program, *arguments], stdin=stdin, stdout=subprocess.PIPE, stderr=stderr,
            env={**passed, "LC_ALL": "C"}, timeout=_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise SetupError(f"{PROGRAM} did not end within {_SECONDS:g} s") from None
    except (OSError, ValueError) as error:
        raise SetupError(f"{program}: {error}") from error
    said, why = (
        (text or b"").decode(errors="surrogateescape") for text in (done.stdout, done.stderr)
    )
    if done.returncode < 0:
        raise SetupError(f"{PROGRAM} was killed by signal {-done.returncode}")
    if done.returncode and any(words in why for words in _UNFIT):
        raise SetupError(f"{PROGRAM} cannot be used: {why.strip().splitlines()[0]}")
    return Done(done.returncode, said, why)
