"""A tracker of TVM's and devices on loopback, each a process of its own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from autopipe.measure.tracker import Tracker, Unreached

SERVER = Path(__file__).parents[2] / "docs" / "guides" / "devices" / "server.py"

TRACKER = """
import socket, sys
from tvm.rpc import tracker
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
tracker._tracker_server(listening, "stop")
"""

THREADS = 2


class RpcFarm:
    """The tracker, and devices by name."""

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[str]] = []
        self._devices: dict[str, subprocess.Popen[str]] = {}
        tracker = self._start(["-c", TRACKER])
        assert tracker.stdout is not None
        self.place = f"127.0.0.1:{int(tracker.stdout.readline())}"

    def add(self, name: str, key: str, *, full: bool = False) -> None:
        """Start a device; one with a full disk takes no file of more than 8 KiB."""
        asked = ["--tracker", self.place, "--key", key, "--threads", str(THREADS), "--port", "0"]
        limited = ["sh", "-c", 'ulimit -f 8; exec "$@"', "sh"] if full else []
        self._devices[name] = self._start([str(SERVER), *asked], limited)

    def wait(self, *keys: str, seconds: float = 60.0) -> None:
        """Return once the tracker knows all keys."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with suppress(Unreached):
                if set(keys) <= set(Tracker(self.place, 5.0).known_keys()):
                    return
            time.sleep(0.1)
        raise TimeoutError(f"no device called {keys}")

    def signal(self, name: str, number: int) -> None:
        """Send a signal to a device and to the sessions that it serves."""
        os.killpg(self._devices[name].pid, number)

    def close(self) -> None:
        for process in self._started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def _start(
        self, command: list[str], before: list[str] | None = None
    ) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [*(before or []), sys.executable, *command], stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, start_new_session=True,
        )  # fmt: skip
        self._started.append(process)
        return process


@contextmanager
def rpc_farm() -> Iterator[RpcFarm]:
    farm = RpcFarm()
    try:
        yield farm
    finally:
        farm.close()
