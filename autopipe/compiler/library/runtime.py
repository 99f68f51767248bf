"""Runs a compiled library: numpy arrays in and out, by name.

Only TVM's runtime library (3 MB) is loaded, through tvm-ffi. That takes 0.1 seconds; `import tvm`
with the compiler would take one or two.
"""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from autopipe.artifacts.library import BuiltLibrary
from autopipe.artifacts.signature import Port, Signature
from autopipe.compiler.library.cuda_runtime import CUDA, Staging
from autopipe.compiler.library.cuda_runtime import load as load_cuda
from autopipe.errors import ConfigError, SetupError, StageError
from autopipe.libraries import loading

ALIGNMENT = 64
"""Bytes; TVM compiles loads and stores that fault on anything less."""

_CPU, _POOLED = 1, 2
_SHARE_ALL_CORES = -3
_configured = threading.local()


class LoadedModel:
    """A loaded library with its weights. Calls from several threads take turns."""

    def __init__(
        self, signature: Signature, main: Callable[..., Any], weights: Sequence[object]
    ) -> None:
        from tvm_ffi import from_dlpack

        self.signature = signature
        self._main = main
        self._buffers = {port.name: aligned(port.shape, port.dtype) for port in signature.inputs}
        tensors = [from_dlpack(buffer) for buffer in self._buffers.values()]
        self._staging = Staging(tensors) if signature.device == "cuda" else None
        put = self._staging.put if self._staging else lambda weight: weight
        self._inputs, self._weights = tensors, [put(weight) for weight in weights]
        self._lock = threading.Lock()

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run one inference; the outputs are the caller's own copies.

        Raises ConfigError where names, shapes or dtypes are not the model's, StageError where
        the library fails.
        """
        arrays = check_inputs(self.signature.inputs, inputs)
        with self._lock:
            use_threads(self.signature.threads)
            for name, array in arrays.items():
                np.copyto(self._buffers[name], array)
            try:
                results = self._run()
            except RuntimeError as error:
                raise StageError(f"the compiled model failed: {_last_line(error)}") from error
            return {
                port.name: np.array(np.from_dlpack(result))
                for port, result in zip(self.signature.outputs, results, strict=True)
            }

    def _run(self) -> list[Any]:
        staging = self._staging
        returned = self._main(*(staging.arguments() if staging else self._inputs), *self._weights)
        results = [returned] if hasattr(returned, "__dlpack__") else list(returned)
        return staging.results(results) if staging else results


def load(library: Path, weights: Path, signature: Signature) -> LoadedModel:
    """Load a library and its weights. Each weight is copied once, into memory that TVM can use.

    Loading runs code of the library: check its digest first. Raises StageError if this TVM can not
    run the file.
    """
    from tvm_ffi import load_module

    _load_runtime()
    devices = [_CPU, 0, _POOLED]
    if signature.device == "cuda":
        load_cuda()
        devices = [CUDA, 0, _POOLED, *devices]
    try:
        with loading():
            machine = load_module(library)["vm_load_executable"]()
        machine["vm_initialization"](*devices)
        main = machine["main"]
    except (RuntimeError, AttributeError) as error:
        raise StageError(f"{library.name} can not be loaded: {_last_line(error)}") from error
    return LoadedModel(signature, main, _weights(weights, signature.weights))


def load_artifact(library: Path) -> LoadedModel:
    """Load the artifact of the stage *build*."""
    return load(
        library / "lib.so", library / "weights.safetensors", BuiltLibrary.read(library).signature
    )


def aligned(shape: tuple[int, ...], dtype: np.typing.DTypeLike) -> np.ndarray:
    """Return an uninitialized array that starts at a multiple of `ALIGNMENT` bytes."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def check_inputs(ports: Sequence[Port], inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the inputs as arrays, or raise a ConfigError that says which one does not fit."""
    names = [port.name for port in ports]
    for name in inputs:
        if name not in names:
            close = get_close_matches(name, names, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"it takes {', '.join(names)}"
            raise ConfigError(f"the model has no input {name!r}; {hint}")
    arrays = {}
    for port in ports:
        if port.name not in inputs:
            raise ConfigError(f"input {port.name!r} {_described(port)} is missing")
        array = np.asarray(inputs[port.name])
        if array.shape != port.shape or array.dtype != np.dtype(port.dtype):
            raise ConfigError(
                f"input {port.name!r} is {array.dtype} {list(array.shape)}; "
                f"the model takes {_described(port)}"
            )
        arrays[port.name] = array
    return arrays


def use_threads(wanted: int) -> None:
    """Let the calling thread's kernels use `wanted` threads, or all allowed cores if fewer.

    By itself TVM uses half of the cores on x86-64, and cuts a larger number of threads to that.
    Only a list of cores raises it. The list has all allowed cores, so that no thread is tied to
    one core that another process may use.
    """
    if getattr(_configured, "threads", None) == wanted:
        return
    from tvm_ffi import get_global_func

    cores = sorted(os.sched_getaffinity(0))
    configure = get_global_func("runtime.config_threadpool")
    configure(_SHARE_ALL_CORES, min(wanted, len(cores)), [str(core) for core in cores])
    _configured.threads = wanted


@cache
def _load_runtime() -> None:
    from tvm_ffi.libinfo import load_lib_ctypes

    spec = find_spec("tvm")
    if spec is None or spec.submodule_search_locations is None:
        raise SetupError("apache-tvm is not installed: pip install autopipe")
    folders = [Path(folder, "lib") for folder in spec.submodule_search_locations]
    load_lib_ctypes("tvm", "tvm_runtime", "RTLD_GLOBAL", folders)
    load_lib_ctypes("tvm", "tvm_runtime_extra", "RTLD_LOCAL", folders)  # sort, topk


def _weights(path: Path, names: Sequence[str]) -> list[object]:
    from safetensors import SafetensorError, safe_open
    from tvm_ffi import from_dlpack

    weights = []
    try:
        with safe_open(path, framework="np") as stored:
            for name in names:
                weight = stored.get_tensor(name)
                copy = aligned(weight.shape, weight.dtype)
                np.copyto(copy, weight)
                weights.append(from_dlpack(copy))
    except (SafetensorError, OSError) as error:
        raise StageError(f"{path.name} can not be read: {error}") from error
    return weights


def _described(port: Port) -> str:
    return f"{port.dtype} {list(port.shape)}"


def _last_line(error: Exception) -> str:
    return str(error).strip().splitlines()[-1]
