"""The process that imports TVM once and then forks a child for each call.

`isolate` starts it. In: first `{"path", "preload"}`, then `{"entry": "module:function",
"argument"}` a call. Out: `{"ready"}`, then for each call `{"pid"}`, the messages of the child -
`{"event"}` any number of times, and its result or failure - and `{"exit", "used"}`.
An argument may name modules under `MEANWHILE`, which are imported once while its child works.
It starts no thread, so that forks of it are safe.
"""

import gc
import importlib
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import Any, Final

from autopipe.host import memory
from autopipe.pipeline.events import Event
from autopipe.processes import failure
from autopipe.processes.ending import end_process
from autopipe.processes.lifeline import die_with_parent
from autopipe.processes.link import Link
from autopipe.processes.start import fork_process, open_parent_link, read_parent_pid

MEANWHILE: Final = "imported_meanwhile"

_COLLECTION_THRESHOLDS: Final = (50_000, 20, 20)
"""Thresholds of garbage collection in a child: a graph of 10,000 nodes is a million live objects
without cycles, which Python's thresholds of (700, 10, 10) visit again and again."""

_groups: set[int] = set()
"""Process groups of running children, for the signal handler `_kill_groups`."""


def main() -> None:
    """Serve calls until the other end of the link is closed."""
    link = open_parent_link()
    with suppress(EOFError):
        hello = json.loads(link.receive())
        sys.path[:] = hello["path"]
        gc.disable()  # nothing that is imported goes away again
        for name in hello["preload"]:
            importlib.import_module(name)
        gc.freeze()  # searching through it takes time, and a child gets a copy of all it looks at
        gc.enable()
        os.environ.pop("OPENBLAS_NUM_THREADS", None)
        signal.signal(signal.SIGTERM, _kill_groups)
        die_with_parent(read_parent_pid(), signal.SIGTERM)
        link.send({"ready": True})
        while True:
            _serve_call(link, json.loads(link.receive()))


def _kill_groups(_number: int, _frame: FrameType | None) -> None:
    """Kill the process groups of children, whose processes may outlive their parent."""
    for group in (*_groups, 0):
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


def _serve_call(link: Link, call: dict[str, Any]) -> None:
    """Fork a child for one call; after its end, kill its process group."""
    oom_kills = memory.count_oom_kills()
    child = fork_process(lambda: _run_child(link, call))
    _groups.add(child.pid)
    _import_modules(call["argument"].get(MEANWHILE, ()))
    status = child.wait()
    end_process(child)
    _groups.clear()
    link.write(b"\n")  # it may have died in the middle of a line
    usage = memory.Used.of(child.usage, oom_kills)
    link.send({"exit": status, "used": usage._asdict()})


def _import_modules(names: Sequence[str]) -> None:
    """Import modules of later calls while the child runs; errors are left to those calls."""
    if not names:
        return
    gc.disable()
    for name in names:
        with suppress(Exception):
            importlib.import_module(name)
    gc.freeze()
    gc.enable()


def _run_child(link: Link, call: dict[str, Any]) -> None:
    """Answer the call in the child, without the zygote's signal handler."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    gc.set_threshold(*_COLLECTION_THRESHOLDS)
    link.send({"pid": os.getpid()})
    link.write(_answer_call(link, call))
    sys.stdout.flush()
    sys.stderr.flush()


def _answer_call(link: Link, call: dict[str, Any]) -> bytes:
    guard = threading.Lock()

    def emit(event: Event) -> None:
        with guard:
            link.send({"event": event.model_dump(mode="json")})

    try:
        module, _, name = call["entry"].partition(":")
        function = getattr(importlib.import_module(module), name)
        return failure.encode_answer(function(call["argument"], emit))
    except BaseException as error:  # noqa: BLE001 -- reported to the parent
        return failure.encode_failure(failure.describe_refused(error))


if __name__ == "__main__":
    main()
