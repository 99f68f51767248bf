"""Run a stage in a child process, so that a crash of native code does not end the run.

A compiler is native code and can crash its process. A stage is a frozen value and its context is
paths and facts, so passing both to a child costs only a fork. What talks to the child is imported
when the first one starts: a cached run starts none.
"""

import json
import math
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar, cast

from autopipe.errors import SetupError, StageError, StoreError
from autopipe.host import refusal
from autopipe.host.memory import Used, describe_kill
from autopipe.pipeline.events import Emit, parse
from autopipe.pipeline.log import Log
from autopipe.pipeline.stage import Context, Stage
from autopipe.processes.lifeline import any_stopped

if TYPE_CHECKING:
    from autopipe.processes.link import Link

_ZYGOTE: Final = "autopipe.pipeline.zygote"

_GLANCE: Final = 5.0
"""Seconds without output after which the processes are inspected."""

_STOPPED: Final = 12
"""Consecutive inspections in which a process is stopped, after which it is killed."""


Answer = TypeVar("Answer")

Message = dict[str, Any]
Entry = Callable[[Mapping[str, Any], Emit], Answer] | str
"""A module-level function that is called in a child; argument and result are JSON values.

One whose module imports TVM is named as `module:function`, as only the child may import it.
"""


class Isolate(Protocol):
    """Runs a stage, and returns its summary."""

    def run(self, stage: Stage, ctx: Context, log: Path) -> str:
        """Run the stage; its output goes to `log`."""


class Killed(StageError):  # noqa: N818 -- says what happened
    """The child was killed: a crash of native code, or no memory left."""

    def __init__(self, how: str, log: Log | None = None) -> None:
        """Store how it ended, in a line, and the log of its output."""
        self.how = how
        self.printed = "" if log is None else log.tail()
        super().__init__(how if log is None else f"{how}{_format_log_tail(log)}")


class Late(Killed):
    """The child had no result within its time limit, and was killed."""


class Bug(Exception):  # noqa: N818 -- it is one
    """An unexpected exception in a child; its text is the traceback from there."""


class Zygote:
    """Runs each call in a fork of one process with preloaded modules."""

    def __init__(self, preload: tuple[str, ...], tmp: Path | None = None) -> None:
        """Configure the zygote without starting it; `preload` names modules to import once.

        Each child inherits them.

        `tmp` is the folder for temporary files of children; None is that of the system.
        """
        self._preload = preload
        self._variables = {
            "ORT_DISABLE_TELEMETRY": "1",  # onnxruntime sends some when it is imported
            "OPENBLAS_NUM_THREADS": "1",  # no threads before forks
        }
        if tmp is not None:
            self._variables["TMPDIR"] = os.fspath(tmp)
        self._open = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        self._child: int | None = None
        self._link: Link
        self._events: selectors.BaseSelector

    def run(self, stage: Stage, ctx: Context, log: Path) -> str:
        """Run the stage in a child. Raises its exception, Killed, or StoreError for a full disk.

        Native code that cannot write ends its process, and prints the reason.
        """
        from autopipe.pipeline.packed import pack_stage, run_packed_stage

        try:
            return self.call(run_packed_stage, pack_stage(stage, ctx), log, ctx.emit, stage.seconds)
        except Killed as error:
            if words := refusal.find_refusal(error.printed):
                raise StoreError(f"{ctx.out}: {words}; stage {stage.name!r} ended of it") from None
            raise Killed(f"stage {stage.name!r} was {error}") from None

    def call(
        self,
        entry: Entry[Answer],
        argument: Mapping[str, Any],
        log: Path,
        emit: Emit,
        seconds: float | None = None,
    ) -> Answer:
        """Call a module-level function in a child, and return its result.

        Argument and result are JSON values. The function is sent by name, because the zygote may
        have been forked before this process imported it.

        Raises the AutopipeError it raised, Bug for any other exception, Killed if it crashed, Late
        if it took longer than `seconds`, and SetupError if the modules to preload cannot be
        imported.
        """
        with Log(log) as output:
            limit = (math.inf if seconds is None else seconds, time.monotonic())
            if self._process is None:
                self._start_zygote(output, *limit)
            if not isinstance(entry, str):
                entry = f"{entry.__module__}:{entry.__qualname__}"
            self._send_message({"entry": entry, "argument": argument})
            answer: Message = {}
            for message in self._receive_messages(output, *limit):
                if "event" in message:
                    emit(parse.validate_python(message["event"]))
                elif "pid" in message:
                    self._child = message["pid"]
                elif "exit" in message:
                    self._child = None
                    usage = Used(**message["used"])
                    return cast("Answer", _open_answer(answer, message["exit"], usage, output))
                else:
                    answer = message
            raise Killed("lost: the process it was forked from died", output)

    def _start_zygote(self, log: Log, seconds: float, start: float) -> None:
        """Start the zygote in a new session, which the terminal's Ctrl-C does not reach."""
        from autopipe.processes.start import program

        try:
            process, self._link = program(_ZYGOTE, subprocess.PIPE, variables=self._variables)
            self._process = process
            self._open.callback(self._link.close)
            self._watch_zygote(process)
        except OSError as error:
            self.close()
            raise SetupError(f"cannot start a process: {error.strerror}") from error
        self._send_message({"path": sys.path, "preload": self._preload})
        if next(self._receive_messages(log, seconds, start), None) != {"ready": True}:
            status = process.wait()
            self._drain_output(log)
            self.close()
            reason = describe_kill(-status) if status < 0 else log.tail(1)
            missing = refusal.explain_memory_refusal(log.tail())
            raise SetupError(f"cannot import {' '.join(self._preload)}: {missing or reason}")

    def _watch_zygote(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None  # noqa: S101 -- asked for above
        os.set_blocking(process.stdout.fileno(), False)
        pidfd = os.pidfd_open(process.pid)
        self._open.callback(os.close, pidfd)
        self._open.enter_context(process.stdout)
        self._events = self._open.enter_context(selectors.DefaultSelector())
        for source in (self._link, process.stdout, pidfd):
            self._events.register(source, selectors.EVENT_READ)

    def _send_message(self, message: Message) -> None:
        with suppress(EOFError):  # its death is noticed when reading
            self._link.send(message)

    def _receive_messages(self, log: Log, seconds: float, start: float) -> Iterator[Message]:
        """Yield messages from the socket, and log the output, until the zygote is gone.

        Raises Killed if it, the child, or a process that the child started stays stopped by a
        signal, and Late if there is no result `seconds` after `start`.
        """
        stopped_count = 0
        while True:
            left = start + seconds - time.monotonic()
            if left <= 0:
                self.close()
                raise Late(f"ended: it had no result after {seconds:g} s", log)
            ready = {key.fileobj for key, _ in self._events.select(min(_GLANCE, left))}
            stopped_count = 0 if ready or not self._stopped() else stopped_count + 1
            if stopped_count == _STOPPED:
                self.close()
                duration = f"{_STOPPED * _GLANCE:g} s"
                raise Killed(f"stopped by a signal; it was ended after {duration} of that", log)
            try:
                lines = self._link.received() if self._link in ready else []
            except EOFError:
                lines = None
            self._drain_output(log)
            if lines is None or (self._link not in ready and self._is_gone()):
                return
            for line in lines:
                with suppress(ValueError, RecursionError):  # cut off when the child died
                    yield json.loads(line)

    def _is_gone(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def _stopped(self) -> bool:
        zygote = self._process.pid if self._process else None
        return any_stopped({group for group in (self._child, zygote) if group is not None})

    def _drain_output(self, log: Log) -> None:
        if self._process is None or self._process.stdout is None:
            return
        with suppress(BlockingIOError):
            while data := os.read(self._process.stdout.fileno(), 1 << 16):
                log.write(data)

    def close(self) -> None:
        """Kill the process groups of the zygote and the child."""
        if self._process is not None:
            from autopipe.processes.ending import end_process

            if self._child is not None:
                with suppress(ProcessLookupError):
                    os.killpg(self._child, signal.SIGKILL)
            end_process(self._process)
        self._process = self._child = None
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _open_answer(answer: Message, status: int, usage: Used, log: Log) -> object:
    """Return the result of the child, or raise its exception."""
    from autopipe.processes.failure import How, describe_ended, split_answer

    result, failure = split_answer(answer)
    if status < 0 or (failure is not None and failure.how is How.GARBLED):
        failure, result = describe_ended(status, log.tail(), usage), None
    if failure is None:
        return result
    match failure.how:
        case How.REFUSED:
            raise failure.error()
        case How.RAISED:
            raise Bug(failure.trace)
        case How.HUNGRY:
            raise Killed(f"ended: {failure.message}", None if failure.kind else log)
        case How.ENDED:
            raise Killed(f"lost: it ended with status {status} and no result", log)
        case _:
            raise Killed(failure.message, log)


def _format_log_tail(log: Log) -> str:
    """Format the last lines of the output and the path of the log; empty without output."""
    lines = [f"  | {line}" for line in log.tail().splitlines()]
    return "".join(f"\n{line}" for line in (*lines, f"  whole output: {log.path}")) if lines else ""
