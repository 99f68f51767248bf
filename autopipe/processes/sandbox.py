"""Work on an untrusted file in a child process that may crash, hang or hoard memory alone.

Where the kernel has seccomp the child can start no process, write no file and open no connection.
"""

import os
import resource
import signal
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from autopipe.errors import AutopipeError, ConfigError, ModelError
from autopipe.processes import failure
from autopipe.processes.bounds import bound, lower
from autopipe.processes.ending import end
from autopipe.processes.failure import Failure, How
from autopipe.processes.link import Link, TooLong, pair
from autopipe.processes.seccomp import confine
from autopipe.processes.start import fork

_ERRORS: Final[dict[str, type[AutopipeError]]] = {
    "ConfigError": ConfigError, "ModelError": ModelError,
}  # fmt: skip

_LINK: Final = 3
"""Where a child answers; all after it is closed."""

_LONGEST: Final = 60_000
"""Characters of an error."""

_ANSWER: Final = 2**30
"""Bytes of an answer; what is checked here is no weights."""


def contained(work: Callable[[], str | None], *, memory: int, seconds: int) -> str:
    """Return what `work` returns in a forked child, limited to `memory` bytes beyond this one.

    Raises the `AutopipeError` that `work` raised; every other bad end is a `ModelError`.
    """
    ours, theirs = pair()
    with warnings.catch_warnings():
        # Python 3.12 warns of forking beside threads; the child waits for none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        process = fork(lambda: _child(work, theirs, memory, seconds))
    theirs.close()
    line, late = None, False
    try:
        line = ours.receive(2 * seconds, _ANSWER)
    except (TimeoutError, TooLong):
        late = True
    except EOFError:
        pass  # how it ends says why
    finally:
        ours.close()
        status = end(process) or 0
    if line is None:
        why = failure.hung(seconds) if late else failure.ended(status)
        raise _error(why, memory, seconds)
    found, failed = failure.opened(line)
    if failed is not None:
        raise _error(failed, memory, seconds)
    return str(found)


def _error(failed: Failure, memory: int, seconds: int) -> AutopipeError:
    """Return what is raised here for it."""
    match failed.how:
        case How.REFUSED:
            return failed.error(_ERRORS, ModelError)
        case How.HUNGRY:
            return ModelError(f"the model needs more than {memory >> 20} MiB to be checked")
        case How.RAISED:
            reason = f"{failed.kind}: {failed.text}"
            return ModelError(f"the model can not be checked: {reason}"[:_LONGEST])
        case How.HUNG:
            return ModelError(f"the model takes longer than {seconds} s to be checked")
    if failed.status == -signal.SIGXCPU:
        return ModelError(f"the model takes longer than {seconds} s to be checked")
    crash = f"signal {-failed.status}" if failed.status < 0 else "no answer"
    return ModelError(f"checking the model crashed ({crash})")


def _child(work: Callable[[], str | None], link: Link, memory: int, seconds: int) -> None:
    """Do the work within limits and say how it went."""
    os.dup2(link.fileno(), _LINK)
    link = Link(_LINK)  # made before it is confined, which refuses that
    try:
        _limit(memory, seconds)
        line = failure.answer(_plain(work() or ""))
    except Exception as error:  # noqa: BLE001 - what a hostile file sets off in a parser
        line = failure.complaint(_failure(error))
    link.write(line)


def _failure(error: Exception) -> Failure:
    if isinstance(error, MemoryError):  # there may be none left to say more
        return Failure(How.HUNGRY, "")
    found = failure.of_ours(error) if isinstance(error, AutopipeError) else failure.raised(error)
    message, text = (_plain(value)[:_LONGEST] for value in (found.message, found.text))
    return replace(found, message=message, text=text, trace="")


def _plain(text: str) -> str:
    """Return a text that can be written down, without halves of characters."""
    return text.encode(errors="replace").decode()


def _limit(memory: int, seconds: int) -> None:
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    os.closerange(_LINK + 1, os.sysconf("SC_OPEN_MAX"))  # nobody else's file or socket stays open
    bound(memory)
    lower(resource.RLIMIT_CPU, seconds)
    lower(resource.RLIMIT_FSIZE, 0)  # what is left where there is no seccomp
    confine()
