"""Serves a device with Python to TVM's RPC tracker; copy it there. It needs apache-tvm and no more.

    python server.py --tracker 127.0.0.1:9190 --key board --threads 4

`python -m tvm.exec.rpc_server` is the same, but after the first kernel that crashes it serves
no requests any more, and does not end either. This one restarts.
"""

import argparse
import multiprocessing
import os
import socket
import sys
import time
from pathlib import Path


def main() -> None:
    """Serve until it is ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tracker", required=True, help="host:port of the tracker")
    parser.add_argument("--key", required=True, help="what this kind of device is called")
    parser.add_argument("--threads", required=True, help="target.num_cores of the pipeline file")
    parser.add_argument("--host", default="127.0.0.1", help="where to listen")
    parser.add_argument("--port", type=int, default=9090, help="0 for any")
    told = parser.parse_args()
    os.environ["TVM_NUM_THREADS"] = told.threads  # before TVM starts threads
    multiprocessing.set_start_method("fork")
    serve(told)


def serve(told: argparse.Namespace) -> None:
    """Take one session after the other."""
    from tvm.rpc import server

    host, _, port = told.tracker.rpartition(":")
    folder = Path.cwd()
    listening = socket.create_server((told.host, told.port))
    while True:
        tracker, here = (host, int(port)), listening.getsockname()
        try:
            server._listen_loop(listening, here[1], told.key, tracker, None, here[0])  # noqa: SLF001
        except RuntimeError as error:
            print("a session ended badly:", error, file=sys.stderr)  # noqa: T201
            os.chdir(folder)  # which TVM leaves when a session begins
            time.sleep(0.1)


if __name__ == "__main__":
    main()
