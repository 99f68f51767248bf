"""The commands of the pages in forks of a process that has imported what takes seconds.

In the folder that `commands` yields, `autopipe` and `python` are scripts that ask that process for
a fork, with their arguments, folder, variables and streams. So is the process of a run that forks
the stages. What the process imports is in its arguments: without our modules, each command imports
those that its `PYTHONPATH` names, such as a copy that a page has changed.
"""

import array
import importlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import CodeType

THEIRS = (
    "numpy", "onnx", "psutil", "pydantic", "safetensors.numpy", "typer", "yaml", "tvm",
    "tvm.relax", "tvm.te", "tvm.s_tir.meta_schedule", "xgboost",
)  # fmt: skip
"""What commands import of others."""

_CLIENT = """#!{python} -ISE
import array, json, os, socket, sys
asked = socket.socket(socket.AF_UNIX)
asked.connect({address!r})
said = dict(name={name!r}, words=sys.argv[1:], folder=os.getcwd(), variables=dict(os.environ))
streams = array.array("i", [0, 1, 2])
asked.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
asked.sendall(json.dumps(said).encode())
asked.shutdown(socket.SHUT_WR)
sys.exit(int(asked.recv(9) or b"70"))
"""


@contextmanager
def commands(preload: Sequence[str]) -> Iterator[Path]:
    """Start the process, which imports modules first, and yield a folder for `PATH`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        address = str(folder / "asked")
        for command in ("autopipe", "python"):
            script = folder / command
            script.write_text(_CLIENT.format(python=sys.executable, address=address, name=command))
            script.chmod(0o700)
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, address, *preload], stdout=subprocess.PIPE,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "ORT_DISABLE_TELEMETRY": "1"},
        )  # fmt: skip
        try:
            assert process.stdout is not None
            with process.stdout:
                assert process.stdout.readline() == b"ready\n"
            yield folder
        finally:
            process.terminate()
            process.wait()


def main(address: str, preload: Sequence[str]) -> None:
    """Fork for each that asks, until the end."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    for name in preload:
        importlib.import_module(name)
    listening.listen()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        asked, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            _answer(asked)
        asked.close()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _answer(asked: socket.socket) -> None:
    """Be the command that is asked for, and say how it ended."""
    streams = array.array("i")
    _, extra, _, _ = asked.recvmsg(1, socket.CMSG_SPACE(3 * streams.itemsize))
    streams.frombytes(extra[0][2])
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    with asked.makefile("rb") as said:
        request = json.loads(said.read())
    code: object = 70
    try:
        code = _run(**request)
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001 - as an interpreter shows it
        traceback.print_exc()
        code = 1
    finally:
        for written in (sys.stdout, sys.stderr):
            written.flush()
        number = code if isinstance(code, int) else int(code is not None)
        asked.sendall(b"%d" % number)
        os._exit(0)


def _run(name: str, words: list[str], folder: str, variables: dict[str, str]) -> int:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    tempfile.tempdir = None
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115 - streams
        for number, mode in enumerate("rww")
    )
    sys.path[:0] = variables["PYTHONPATH"].split(os.pathsep)
    sys.argv = [name, *words]
    from autopipe.pipeline import isolate
    from tests.support.forked import program

    vars(isolate)["program"] = program
    if name == "python":
        code: CodeType = compile(sys.stdin.read(), "<stdin>", "exec")
        exec(code, {"__name__": "__main__"})
    else:
        from autopipe.cli.app import main as autopipe

        autopipe()
    return 0


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
