"""A function in a process of its own: one JSON request in, one JSON answer out.

For work that may crash, spin or leave state behind: reference runtimes, contenders, packages.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

from autopipe import errors
from autopipe.errors import AutopipeError, StageError, StoreError
from autopipe.host import refusal
from autopipe.host.memory import killed
from autopipe.processes.variables import handed_on

Answer = Mapping[str, Any]

_NO_TELEMETRY = {"ORT_DISABLE_TELEMETRY": "1"}
"""From 1.29 on, importing onnxruntime uploads what it learns, unless this is set before."""


def call(module: str, request: Mapping[str, object], *, timeout: float | None = None) -> Answer:
    """Run `python -m module` on a request and return what it answers.

    Raises the AutopipeError the child raised; StageError where it crashed, broke, or took longer
    than `timeout` seconds; StoreError where a disk or a limit refused something.
    """
    with tempfile.TemporaryFile() as complaints:
        try:
            child = subprocess.run(  # noqa: S603
                [sys.executable, "-P", "-m", module, str(os.getpid())],
                input=json.dumps(request).encode(),
                stdout=subprocess.PIPE,
                stderr=complaints,
                env=handed_on(**_NO_TELEMETRY),
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise StageError(f"gave no answer within {timeout:g} s") from None
        if child.returncode:
            raise _broken(child.returncode, _tail(complaints.fileno()))
    return _opened(child.stdout)


def serve(function: Callable[[Answer], Answer]) -> None:
    """Answer the one request on standard input, as the main program of a child.

    Whatever else is printed goes to standard error.
    """
    from autopipe.processes.lifeline import die_with_parent

    die_with_parent(int(sys.argv[1]))
    with os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8") as out:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        try:
            reply: object = {"answer": function(json.load(sys.stdin))}
        except Exception as error:
            found = _told(error)
            if found is None:
                raise
            reply = {"error": _known(found), "message": str(found)}
        json.dump(reply, out)


def _opened(reply: bytes) -> Answer:
    """Return what a child answered, or raise what it raised; its work may have written there."""
    try:
        found = json.loads(reply)
        if "error" in found:
            kind, message = getattr(errors, found["error"]), str(found["message"])
            raise kind(message) if issubclass(kind, AutopipeError) else StageError(message)
        return dict(found["answer"])
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise StageError("gave an answer that can not be read") from None


def _told(error: Exception) -> AutopipeError | None:
    """Return an error as the parent is told it; None for one that nobody expected."""
    if isinstance(error, StageError):
        return refusal.of_a_stage(error) or error
    if isinstance(error, AutopipeError):
        return error
    missing = refusal.starved(error)
    return StageError(missing) if missing else refusal.refused(error)


def _broken(status: int, last: str) -> AutopipeError:
    """Return what a child ended of that gave no answer; `last` is the last line it printed."""
    if words := refusal.said(last):
        return StoreError(f"{refusal.temporary()}: {words}")
    if missing := refusal.hunger(last):
        return StageError(missing)
    return StageError(killed(-status) if status < 0 else f"broke: {last}")


def _known(error: AutopipeError) -> str:
    """Return the class by which the parent knows an error."""
    return next(each.__name__ for each in type(error).__mro__ if hasattr(errors, each.__name__))


def _tail(descriptor: int) -> str:
    size = os.fstat(descriptor).st_size
    text = os.pread(descriptor, 2000, max(0, size - 2000)).decode(errors="replace")
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no reason given"
