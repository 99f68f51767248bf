"""The process that imports TVM once and then forks a child for each call.

`isolate` starts it. In: first `{"path", "preload"}`, then `{"entry": "module:function",
"argument"}` a call. Out: `{"ready"}`, then for each call `{"pid"}`, what the child says -
`{"event"}` any number of times, and what it has found or how it failed - and `{"exit", "used"}`.
It starts no thread, so that a fork of it is a sound process.
"""

import gc
import importlib
import json
import os
import signal
import sys
import threading
from contextlib import suppress
from dataclasses import asdict
from types import FrameType
from typing import Any

from autopipe.host import memory
from autopipe.pipeline.events import Event
from autopipe.processes import failure
from autopipe.processes.ending import end
from autopipe.processes.lifeline import die_with_parent
from autopipe.processes.link import Link
from autopipe.processes.start import begin, fork, parent

_groups: set[int] = set()
"""Process groups of children that are running; `_end` can be told in no other way."""


def main() -> None:
    """Serve calls until the other end of the link is closed."""
    link = begin()
    with suppress(EOFError):
        hello = json.loads(link.receive())
        sys.path[:] = hello["path"]
        gc.disable()  # nothing that is imported goes away again
        for name in hello["preload"]:
            importlib.import_module(name)
        gc.freeze()  # searching through it takes time, and a child gets a copy of all it looks at
        gc.enable()
        os.environ.pop("OPENBLAS_NUM_THREADS", None)
        signal.signal(signal.SIGTERM, _end)
        die_with_parent(parent(), signal.SIGTERM)
        link.send({"ready": True})
        while True:
            _serve(link, json.loads(link.receive()))


def _end(_number: int, _frame: FrameType | None) -> None:
    """Kill what the child has started, which may not know how to die with its parent."""
    for group in (*_groups, 0):
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


def _serve(link: Link, call: dict[str, Any]) -> None:
    """Fork a child for one call; once it is gone, end what it left running in its group."""
    starved = memory.starved()
    child = fork(lambda: _child(link, call))
    _groups.add(child.pid)
    status = child.wait()
    end(child)
    _groups.clear()
    link.write(b"\n")  # it may have died in the middle of a line
    used = memory.Used.of(child.usage, starved)
    link.send({"exit": status, "used": asdict(used)})


def _child(link: Link, call: dict[str, Any]) -> None:
    """Answer the call without running anything that belongs to the zygote."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    link.send({"pid": os.getpid()})
    link.write(_answer(link, call))
    sys.stdout.flush()
    sys.stderr.flush()


def _answer(link: Link, call: dict[str, Any]) -> bytes:
    guard = threading.Lock()

    def emit(event: Event) -> None:
        with guard:
            link.send({"event": event.model_dump(mode="json")})

    try:
        module, _, name = call["entry"].partition(":")
        function = getattr(importlib.import_module(module), name)
        return failure.answer(function(call["argument"], emit))
    except BaseException as error:  # noqa: BLE001 -- whatever it is, the parent shows it
        return failure.complaint(failure.refused(error))


if __name__ == "__main__":
    main()
