"""Serves an exported model over HTTP by the Open Inference Protocol (KServe V2).

Requests beyond the queue get 503, bodies beyond the limit 413, requests beyond the time limit 504.
SIGTERM ends it after the running requests. Needs NumPy, starlette, uvicorn and
prometheus-client.
"""

from __future__ import annotations

import asyncio
import json
import time
from argparse import ArgumentParser, Namespace
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import autopipe_runtime
import numpy as np
import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, Counter, Gauge, Histogram, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

LENGTH: Final = "Inference-Header-Content-Length"
REQUESTS: Final = Counter("autopipe_requests", "Answers by status", ["status"])
SECONDS: Final = Histogram("autopipe_inference_seconds", "From the body to the answer")
WAITING: Final = Gauge("autopipe_requests_waiting", "Requests that run or wait")
WRONG: Final = (ValueError, KeyError, TypeError, AttributeError, RecursionError,
                autopipe_runtime.CallError)  # fmt: skip
"""Exceptions of a request that breaks the protocol or does not fit the model."""

EXIT_CODES: Final = {1: 2, 3: 3, 4: 4}
"""Exit codes if the folder cannot be opened, by status, equal to those of the folder's program."""


def to_datatype(dtype: str) -> str:
    """Return the protocol's name of a dtype, such as FP32 for float32."""
    return dtype.upper().replace("FLOAT", "FP")


class InferenceServer:
    """One model, the threads that call it, and the limits on requests."""

    def __init__(
        self, model: autopipe_runtime.ExportedModel, name: str, options: Namespace
    ) -> None:
        self.model, self.name, self.options = model, name, options
        self.calls = ThreadPoolExecutor(options.instances, "call")
        self.waiting = 0

    async def infer(self, request: Request) -> Response:
        """Answer a request of inference."""
        self.check_name(request)
        if self.waiting >= self.options.queue:
            raise HTTPException(503, "too many requests wait")
        self.waiting += 1
        WAITING.inc()
        seconds = self.options.limit_ms / 1000
        try:
            async with asyncio.timeout(seconds):
                answer = await self.answer_in_thread(request, time.monotonic() + seconds)
        except TimeoutError:
            raise HTTPException(504, f"no answer within {seconds:g} seconds") from None
        except WRONG as error:
            raise HTTPException(400, f"{type(error).__name__}: {error}") from None
        finally:
            self.waiting -= 1
            WAITING.dec()
        REQUESTS.labels(200).inc()
        return answer

    async def answer_in_thread(self, request: Request, due: float) -> Response:
        """Read a body and answer it in a thread."""
        body = await self.read_body(request)
        with SECONDS.time():
            end = int(request.headers.get(LENGTH, len(body)))
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self.calls, self.answer, body, end, due)

    async def read_body(self, request: Request) -> bytes:
        """Read a body up to the limit."""
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > self.options.limit_mib << 20:
                raise HTTPException(413, f"the body has more than {self.options.limit_mib} MiB")
        return bytes(body)

    def answer(self, body: bytes, end: int, due: float) -> Response:
        """Run the model on the inputs of a body whose JSON ends at `end`."""
        message = json.loads(body[:end])
        inputs = {}
        for tensor in message["inputs"]:
            dtype = np.dtype(tensor["datatype"].lower().replace("fp", "float"))
            if (size := tensor.get("parameters", {}).get("binary_data_size")) is not None:
                array = np.frombuffer(body[end : end + size], dtype)
                end += size
            else:
                array = np.asarray(tensor["data"], dtype).ravel()
            inputs[tensor["name"]] = array.reshape([max(int(n), 0) for n in tensor["shape"]])
        outputs = self.model(inputs, limit=max(due - time.monotonic(), 0.0))
        requested = {one["name"]: one.get("parameters", {}) for one in message.get("outputs", [])}
        binary = message.get("parameters", {}).get("binary_data_output", False)
        tensors, parts = [], []
        for name in requested or outputs:
            array = outputs[name]
            tensor = {"name": name, "datatype": to_datatype(array.dtype.name), "shape": array.shape}
            if requested.get(name, {}).get("binary_data", binary):
                parts.append(array.tobytes())
                tensor["parameters"] = {"binary_data_size": array.nbytes}
            else:
                tensor["data"] = array.ravel().tolist()
            tensors.append(tensor)
        identity = {"id": message["id"]} if "id" in message else {}
        text = json.dumps({"model_name": self.name, **identity, "outputs": tensors})
        if not parts:
            return Response(text, media_type="application/json")
        headers = {LENGTH: str(len(text.encode()))}
        return Response(b"".join([text.encode(), *parts]), 200, headers, "application/octet-stream")

    def check_name(self, request: Request) -> None:
        """Answer 404 to a request for another model."""
        if request.path_params["model"] != self.name:
            raise HTTPException(404, f"the model is {self.name}")

    async def describe(self, request: Request) -> Response:
        """Answer with names, dtypes and shapes; -1 is a dynamic dimension."""
        self.check_name(request)
        ports = {
            kind: [
                {"name": p.name, "datatype": to_datatype(p.dtype), "shape": p.shape} for p in ports
            ]
            for kind, ports in (("inputs", self.model.inputs), ("outputs", self.model.outputs))
        }
        return JSONResponse({"name": self.name, "versions": [], "platform": "autopipe", **ports})


async def describe_server(_: Request) -> Response:
    """Answer with the extensions of the protocol: binary tensors."""
    extensions = ["binary_tensor_data"]
    return JSONResponse({"name": "autopipe", "version": "1", "extensions": extensions})


async def report_health(_: Request) -> Response:
    """Answer that the server is up; it listens once the model is open."""
    return JSONResponse({"live": True, "ready": True})


async def report_metrics(_: Request) -> Response:
    """Answer with the metrics of Prometheus."""
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)


async def refuse(_: Request, error: Exception) -> Response:
    """Answer with the reason of a refusal."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    REQUESTS.labels(status).inc()
    return JSONResponse({"error": getattr(error, "detail", str(error))}, status)


def make_app(folder: Path, options: Namespace) -> Starlette:
    """Return the application that serves a folder."""
    model = autopipe_runtime.open_package(
        folder, threads=options.threads, instances=options.instances
    )
    server = InferenceServer(model, folder.resolve().name.removesuffix(".tar"), options)
    model_path = "/v2/models/{model}"
    routes = [
        Route("/v2", describe_server), Route("/v2/health/live", report_health),
        Route("/v2/health/ready", report_health),
        Route("/metrics", report_metrics), Route(model_path, server.describe),
        Route(f"{model_path}/ready", server.describe),
        Route(f"{model_path}/infer", server.infer, methods=["POST"]),
    ]  # fmt: skip
    return Starlette(routes=routes, exception_handlers={HTTPException: refuse})


def main() -> None:
    """Serve until a signal ends it."""
    parser = ArgumentParser(description="Serve a folder of `autopipe export` over HTTP.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--host", default="127.0.0.1")
    numbers = {"port": 8000, "instances": 2, "threads": 1, "queue": 64, "limit-mib": 64,
               "limit-ms": 30000}  # fmt: skip
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default {default}")
    options = parser.parse_args()
    try:
        app = make_app(options.folder, options)
    except autopipe_runtime.CallError as error:
        parser.exit(EXIT_CODES.get(error.status, 1), f"error: {error}\n")
    uvicorn.run(
        app, host=options.host, port=options.port,
        log_level="warning", timeout_graceful_shutdown=30,
    )  # fmt: skip


if __name__ == "__main__":
    main()
