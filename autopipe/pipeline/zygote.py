"""The process that imports TVM once and then forks a child for each call.

Started as `python -m autopipe.pipeline.zygote FD PARENT`. Everything on the socket is a line of
JSON. In: first `{"path", "preload"}`, then `{"entry": "module:function", "argument"}` a call. Out:
`{"ready"}`, then for each call `{"pid"}`, what the child says - `{"event"}` any number of times
and one of `{"ok"}`, `{"error"}`, `{"hungry"}`, `{"bug"}` - and `{"exit", "used"}`. It starts no
thread, so that a fork of it is a sound process.
"""

import importlib
import json
import os
import signal
import socket
import sys
import threading
import traceback
from contextlib import suppress
from dataclasses import asdict
from types import FrameType
from typing import Any, NoReturn

from autopipe import errors
from autopipe.host import memory, refusal
from autopipe.pipeline.events import Event
from autopipe.processes.lifeline import die_with_parent

_groups: set[int] = set()
"""Process groups of children that are running; `_end` can be told in no other way."""


def main() -> None:
    """Serve calls until the other end of the socket is closed."""
    die_with_parent(int(sys.argv[2]))
    with socket.socket(fileno=int(sys.argv[1])) as link, link.makefile() as lines:
        hello = json.loads(next(lines))
        sys.path[:] = hello["path"]
        for name in hello["preload"]:
            importlib.import_module(name)
        os.environ.pop("OPENBLAS_NUM_THREADS", None)
        signal.signal(signal.SIGTERM, _end)
        die_with_parent(int(sys.argv[2]), signal.SIGTERM)
        _tell(link, {"ready": True})
        for line in lines:
            _serve(link, json.loads(line))


def _end(_number: int, _frame: FrameType | None) -> None:
    """Kill what the child has started, which may not know how to die with its parent."""
    for group in (*_groups, 0):
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


def _serve(link: socket.socket, call: dict[str, Any]) -> None:
    """Fork a child for one call; once it is gone, end what it left running in its group."""
    zygote, starved = os.getpid(), memory.starved()
    child = os.fork()
    if child == 0:
        _child(link, call, zygote)
    with suppress(ProcessLookupError, PermissionError):  # it was quicker, or is gone
        os.setpgid(child, child)
    _groups.add(child)
    _, status, usage = os.wait4(child, 0)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    _groups.clear()
    link.sendall(b"\n")  # it may have died in the middle of a line
    used = memory.Used.of(usage, starved)
    _tell(link, {"exit": os.waitstatus_to_exitcode(status), "used": asdict(used)})


def _child(link: socket.socket, call: dict[str, Any], zygote: int) -> NoReturn:
    """Answer the call and end without running anything that belongs to the zygote."""
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        die_with_parent(zygote)
        with suppress(PermissionError):
            os.setpgid(0, 0)
        _tell(link, {"pid": os.getpid()})
        _tell(link, _answer(link, call))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    finally:
        os._exit(errors.AutopipeError.exit_code)


def _answer(link: socket.socket, call: dict[str, Any]) -> dict[str, Any]:
    guard = threading.Lock()

    def emit(event: Event) -> None:
        with guard:
            _tell(link, {"event": event.model_dump(mode="json")})

    try:
        module, _, name = call["entry"].partition(":")
        function = getattr(importlib.import_module(module), name)
        return {"ok": function(call["argument"], emit)}
    except errors.AutopipeError as error:
        known = next(
            kind.__name__ for kind in type(error).__mro__ if hasattr(errors, kind.__name__)
        )
        return {"error": {"type": known, "message": str(error)}}
    except BaseException as error:  # noqa: BLE001 -- whatever it is, the parent shows it
        if missing := refusal.starved(error):
            return {"hungry": missing}
        if refused := refusal.refused(error):
            return {"error": {"type": "StoreError", "message": str(refused)}}
        return {"bug": traceback.format_exc()}


def _tell(link: socket.socket, message: dict[str, Any]) -> None:
    link.sendall(json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    main()
