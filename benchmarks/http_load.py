"""Requests a second of serve.py: `python benchmarks/http_load.py FOLDER MODEL.onnx`.

The server of an exported folder against the same server with one session of onnxruntime in place
of the model, with as many threads. Clients send binary tensors over connections that they keep,
each as soon as it has its answer; they share the machine with the server. Prints requests a second
and how long a request takes.
"""

import argparse
import http.client
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from served import load_onnxruntime
from serving import inputs_of

LENGTH: Final = "Inference-Header-Content-Length"
CLIENTS: Final = (1, 4, 16)


def main() -> None:
    """Compare both servers, or be one of them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--instances", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve_onnxruntime(options)
        return
    print(f"{'clients':>8} {'server':>12} {'requests/s':>11} {'p50 ms':>8} {'p99 ms':>8}")
    with started("autopipe", options) as ours, started("onnxruntime", options) as theirs:
        ports = {"autopipe": ours, "onnxruntime": theirs}
        for clients in CLIENTS:
            times: dict[str, list[float]] = {name: [] for name in ports}
            for _ in range(options.rounds):  # they take turns
                for name, port in ports.items():
                    times[name] += load(port, options, clients)
            for name, taken in times.items():
                rate = len(taken) / options.seconds / options.rounds
                p50, p99 = (1e3 * statistics.quantiles(taken, n=100)[at] for at in (49, 98))
                print(f"{clients:>8} {name:>12} {rate:>11.1f} {p50:>8.2f} {p99:>8.2f}", flush=True)


class Session:
    """A session of onnxruntime, called as the model of a folder is."""

    def __init__(self, options: argparse.Namespace, model: Any) -> None:  # noqa: ANN401 - untyped
        self.inputs, self.outputs = model.inputs, model.outputs
        self._call = load_onnxruntime(options.model, options.threads)

    def __call__(self, arrays: Mapping[str, np.ndarray], **_: float) -> dict[str, np.ndarray]:
        """Run once; there is no time limit."""
        return dict(zip((port.name for port in self.outputs), self._call(arrays), strict=True))


def serve_onnxruntime(options: argparse.Namespace) -> None:
    """Run serve.py with a session in place of the model."""
    sys.path.insert(0, str(options.folder / "python"))
    import autopipe_runtime
    import serve

    with autopipe_runtime.open_package(options.folder) as model:
        session = Session(options, model)
    autopipe_runtime.open_package = lambda *_, **__: session
    sys.argv = ["serve.py", str(options.folder), *options.serve.split()]
    serve.main()


@contextmanager
def started(name: str, options: argparse.Namespace) -> Iterator[int]:
    """Run a server; yields its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    words = ["--port", str(port), "--threads", str(options.threads)]
    words += ["--instances", str(options.instances)]
    if name == "autopipe":
        command = [options.folder / "python" / "serve.py", options.folder, *words]
    else:
        command = [__file__, options.folder, options.model, "--serve", " ".join(words)]
    with subprocess.Popen([sys.executable, *command]) as process:
        try:
            wait_until_ready(port)
            yield port
        finally:
            process.terminate()


def wait_until_ready(port: int) -> None:
    """Wait until a server answers, at most a minute."""
    for _ in range(600):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port)
            connection.request("GET", "/v2/health/ready")
            connection.getresponse().read()
        except ConnectionError:
            time.sleep(0.1)
        else:
            return


def load(port: int, options: argparse.Namespace, clients: int) -> list[float]:
    """Return the seconds of each request of some clients."""
    header, body = request_of(inputs_of(options.folder))
    path = f"/v2/models/{options.folder.resolve().name}/infer"

    def send_until(end: float) -> list[float]:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        times = []
        while (start := time.perf_counter()) < end:
            connection.request("POST", path, body, {LENGTH: str(header)})
            answer = connection.getresponse()
            text = answer.read()
            if answer.status != http.client.OK:
                raise SystemExit(text.decode(errors="replace"))
            times.append(time.perf_counter() - start)
        return times

    with ThreadPoolExecutor(clients) as pool:
        for seconds in (0.5, options.seconds):
            end = time.perf_counter() + seconds
            lists = list(pool.map(send_until, [end] * clients))
    return [one for times in lists for one in times]


def request_of(inputs: Mapping[str, np.ndarray]) -> tuple[int, bytes]:
    """Return a request with binary tensors: the length of its JSON, and its bytes."""
    listed = [
        {
            "name": name,
            "datatype": array.dtype.name.upper().replace("FLOAT", "FP"),
            "shape": array.shape,
            "parameters": {"binary_data_size": array.nbytes},
        }
        for name, array in inputs.items()
    ]
    asked = {"inputs": listed, "parameters": {"binary_data_output": True}}
    text = json.dumps(asked).encode()
    return len(text), b"".join([text, *(array.tobytes() for array in inputs.values())])


if __name__ == "__main__":
    main()
