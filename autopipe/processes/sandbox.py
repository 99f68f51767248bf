"""Process an untrusted file in a child process, which contains crashes, hangs and memory overruns.

If the kernel has seccomp, the child cannot start processes, write files or open connections.
"""

import os
import resource
import signal
import warnings
from collections.abc import Callable
from typing import Final

from autopipe.errors import AutopipeError, ConfigError, ModelError
from autopipe.processes import failure
from autopipe.processes.bounds import limit_address_space, lower_limit
from autopipe.processes.ending import end_process
from autopipe.processes.failure import Failure, How
from autopipe.processes.link import Link, TooLong, make_link_pair
from autopipe.processes.seccomp import confine_thread
from autopipe.processes.start import fork_process

_ERRORS: Final[dict[str, type[AutopipeError]]] = {
    "ConfigError": ConfigError, "ModelError": ModelError,
}  # fmt: skip

_LINK: Final = 3
"""Descriptor of the link in a child; later ones are closed."""

_LONGEST: Final = 60_000
"""Maximum length of an error."""

_ANSWER: Final = 2**30
"""Maximum bytes of an answer, which has no weights."""


def run_in_sandbox(work: Callable[[], str | None], *, memory: int, seconds: int) -> str:
    """Run `work` in a forked child, limited to `memory` bytes beyond this process; return its text.

    Raises the `AutopipeError` of `work`; every other failure is a `ModelError`.
    """
    ours, theirs = make_link_pair()
    with warnings.catch_warnings():
        # Python 3.12 warns of forking beside threads; the child waits for none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        process = fork_process(lambda: _run_child(work, theirs, memory, seconds))
    theirs.close()
    line, late = None, False
    try:
        line = ours.receive(2 * seconds, _ANSWER)
    except (TimeoutError, TooLong):
        late = True
    except EOFError:
        pass  # its exit status is the reason
    finally:
        ours.close()
        status = end_process(process) or 0
    if line is None:
        why = failure.describe_hung(seconds) if late else failure.describe_ended(status)
        raise _to_error(why, memory, seconds)
    answer, report = failure.decode_answer(line)
    if report is not None:
        raise _to_error(report, memory, seconds)
    return str(answer)


def _to_error(report: Failure, memory: int, seconds: int) -> AutopipeError:
    """Convert a failure to an error."""
    match report.how:
        case How.REFUSED:
            return report.error(_ERRORS, ModelError)
        case How.HUNGRY:
            return ModelError(f"the model needs more than {memory >> 20} MiB to be checked")
        case How.RAISED:
            reason = f"{report.kind}: {report.text}"
            return ModelError(f"the model cannot be checked: {reason}"[:_LONGEST])
        case How.HUNG:
            return ModelError(f"the model takes longer than {seconds} s to be checked")
    if report.status == -signal.SIGXCPU:
        return ModelError(f"the model takes longer than {seconds} s to be checked")
    crash = f"signal {-report.status}" if report.status < 0 else "no answer"
    return ModelError(f"checking the model crashed ({crash})")


def _run_child(work: Callable[[], str | None], link: Link, memory: int, seconds: int) -> None:
    """Run the work within limits and send the result."""
    os.dup2(link.fileno(), _LINK)
    link = Link(_LINK)  # made before it is confined, which refuses that
    try:
        _confine_child(memory, seconds)
        line = failure.encode_answer(_replace_surrogates(work() or ""))
    except Exception as error:  # noqa: BLE001 - a hostile file may raise anything in a parser
        line = failure.encode_failure(_describe_failure(error))
    link.write(line)


def _describe_failure(error: Exception) -> Failure:
    if isinstance(error, MemoryError):  # there may be no memory for a message
        return Failure(How.HUNGRY, "")
    report = (
        failure.describe_own_error(error)
        if isinstance(error, AutopipeError)
        else failure.describe_raised(error)
    )
    message, text = (
        _replace_surrogates(value)[:_LONGEST] for value in (report.message, report.text)
    )
    return report._replace(message=message, text=text, trace="")


def _replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which cannot be encoded."""
    return text.encode(errors="replace").decode()


def _confine_child(memory: int, seconds: int) -> None:
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    os.closerange(_LINK + 1, os.sysconf("SC_OPEN_MAX"))  # no inherited file or socket stays open
    limit_address_space(memory)
    lower_limit(resource.RLIMIT_CPU, seconds)
    lower_limit(resource.RLIMIT_FSIZE, 0)  # the only limit on writing without seccomp
    confine_thread()
