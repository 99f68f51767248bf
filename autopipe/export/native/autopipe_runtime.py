"""Runs an exported model with NumPy alone: the same calls as `autopipe.open_package`.

>>> model = autopipe_runtime.open_package("squeezenet")
>>> outputs = model({"data_0": image})
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import numpy as np

_RANK: Final = 16
_NO_LIMIT: Final = -1
_DTYPES: Final = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
    "float32", "float64",
)  # fmt: skip
_Sizes = ctypes.c_int64 * _RANK


class CallError(RuntimeError):
    """A call failed; `status` is the code of `autopipe.h`."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class _Options(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t),
        ("threads", ctypes.c_int),
        ("instances", ctypes.c_int),
        ("verify_digests", ctypes.c_int),
        ("copy_weights", ctypes.c_int),
    )


class _Port(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_int),
        ("rank", ctypes.c_int),
        ("shape", _Sizes),
        ("minimum", _Sizes),
        ("maximum", _Sizes),
        ("multiple", _Sizes),
    )


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_int),
        ("rank", ctypes.c_int),
        ("shape", _Sizes),
        ("data", ctypes.c_void_p),
        ("bytes", ctypes.c_size_t),
        ("owner", ctypes.c_void_p),
    )


class _State(ctypes.Structure):
    _fields_ = (("input", ctypes.c_char_p), ("output", ctypes.c_char_p))


class ExportedPort:
    """An input or output: name, dtype and shape, with -1 for a dynamic dimension."""

    def __init__(self, port: _Port) -> None:
        self.name: str = port.name.decode()
        self.dtype = _DTYPES[port.dtype - 1]
        self.shape = tuple(port.shape[: port.rank])
        self.minimum = tuple(port.minimum[: port.rank])
        self.maximum = tuple(port.maximum[: port.rank])

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype} {list(self.shape)}"


class ExportedModel:
    """An open model: called with arrays by name, it returns arrays by name."""

    def __init__(self, library: ctypes.CDLL, handle: int) -> None:
        self._library, self._handle = library, ctypes.c_uint64(handle)
        self.inputs = self._ports("input")
        self.outputs = self._ports("output")

    def __call__(
        self, inputs: Mapping[str, np.ndarray[Any, Any]], *, wait_ms: int = _NO_LIMIT
    ) -> dict[str, np.ndarray[Any, Any]]:
        """Run once. Raises CallError where names, dtypes or shapes are not the model's.

        `wait_ms` bounds how long the call waits for a free instance, in milliseconds.
        """
        arrays = {name: np.ascontiguousarray(array) for name, array in inputs.items()}
        given = (_Tensor * len(arrays))(*(_tensor(name, a) for name, a in arrays.items()))
        results = (_Tensor * len(self.outputs))(
            *(_Tensor(name=port.name.encode()) for port in self.outputs)
        )
        count = ctypes.c_size_t
        self._check(
            self._library.autopipe_run(
                self._handle, given, count(len(given)), results, count(len(results)),
                ctypes.c_int64(wait_ms),
            )
        )  # fmt: skip
        try:
            return {result.name.decode(): _copy(result) for result in results}
        finally:
            for result in results:
                self._library.autopipe_release(ctypes.byref(result))

    def stream(self, states: Mapping[str, str]) -> ExportedModel:
        """Return a model that keeps states: each input takes what its output returned before."""
        listed = (_State * len(states))(
            *(_State(i.encode(), o.encode()) for i, o in states.items())
        )
        handle = ctypes.c_uint64()
        self._check(
            self._library.autopipe_open_stream(
                self._handle, listed, ctypes.c_size_t(len(listed)), ctypes.byref(handle)
            )
        )
        return ExportedModel(self._library, handle.value)

    def reset(self) -> None:
        """Make the states of a stream zeros."""
        self._check(self._library.autopipe_reset(self._handle))

    def close(self) -> None:
        """End the model, its threads and its mapping of the weights."""
        self._check(self._library.autopipe_close(self._handle))

    def __enter__(self) -> ExportedModel:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"ExportedModel(inputs={self.inputs}, outputs={self.outputs})"

    def _ports(self, kind: str) -> list[ExportedPort]:
        count, port = ctypes.c_size_t(), _Port()
        count_of = getattr(self._library, f"autopipe_{kind}_count")
        describe = getattr(self._library, f"autopipe_{kind}")
        self._check(count_of(self._handle, ctypes.byref(count)))
        ports = []
        for index in range(count.value):
            self._check(describe(self._handle, ctypes.c_size_t(index), ctypes.byref(port)))
            ports.append(ExportedPort(port))
        return ports

    def _check(self, status: int) -> None:
        _check(self._library, status)


def open_package(
    folder: str | Path,
    *,
    threads: int = 0,
    instances: int = 1,
    verify: bool = False,
    copy_weights: bool = False,
) -> ExportedModel:
    """Open an exported folder.

    Args:
        folder: What `autopipe export` wrote.
        threads: Of each instance; 0 for as many as the model was tuned for.
        instances: Calls that run at the same time, each with working memory of its own.
        verify: Compare every file with SHA256SUMS first.
        copy_weights: Weights in private memory with large pages in place of a shared mapping.

    Raises CallError if it cannot be opened.
    """
    library = ctypes.CDLL(str(Path(folder, "lib", "libautopipe.so").resolve()), ctypes.RTLD_GLOBAL)
    library.autopipe_last_error.restype = ctypes.c_char_p
    options = _Options(ctypes.sizeof(_Options), threads, instances, verify, copy_weights)
    handle = ctypes.c_uint64()
    path = str(Path(folder).resolve()).encode()
    _check(library, library.autopipe_open(path, ctypes.byref(options), ctypes.byref(handle)))
    return ExportedModel(library, handle.value)


def _check(library: ctypes.CDLL, status: int) -> None:
    if status:
        raise CallError(status, library.autopipe_last_error().decode(errors="replace"))


def _tensor(name: str, array: np.ndarray[Any, Any]) -> _Tensor:
    if array.dtype.name not in _DTYPES:
        raise CallError(1, f"input {name} is {array.dtype}, which no model takes")
    shape = _Sizes(*array.shape)
    dtype = _DTYPES.index(array.dtype.name) + 1
    data = array.ctypes.data
    return _Tensor(name.encode(), dtype, array.ndim, shape, data, array.nbytes, None)


def _copy(result: _Tensor) -> np.ndarray[Any, Any]:
    memory = (ctypes.c_char * result.bytes).from_address(result.data or 0) if result.bytes else b""
    flat = np.frombuffer(memory, _DTYPES[result.dtype - 1])
    return flat.reshape(tuple(result.shape[: result.rank])).copy()
