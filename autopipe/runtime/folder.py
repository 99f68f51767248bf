"""Run an exported model with NumPy alone, with the interface of `autopipe.open_package`.

>>> model = autopipe_runtime.open_package("squeezenet")
>>> outputs = model({"data_0": image})
"""

from __future__ import annotations

import ctypes
import math
import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple, Union

import numpy as np

_RANK, _NO_LIMIT, _UNTIL_CANCELLED = 16, -1, -2
_INVALID_ARGUMENT, _INVALID_FILE = 1, 3
_LIMITS: Final = (7, 8)  # statuses of calls that ended early: late, cancelled
_NAMES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64"
_DTYPES: Final = tuple(map(np.dtype, _NAMES.split()))
_CODES: Final = {dtype: place + 1 for place, dtype in enumerate(_DTYPES)}
_Sizes = ctypes.c_int64 * _RANK
Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]
Inputs = Union[Arrays, Array, Sequence[Array]]  # noqa: UP007 - Python 3.9 has no `|` of types


class CallError(RuntimeError):
    """A call failed; `status` is the code of `autopipe.h`."""

    def __init__(self, reason: str, status: int = _INVALID_ARGUMENT) -> None:
        super().__init__("".join(c if c.isprintable() else "?" for c in reason))
        self.status = status


class CallLimitError(CallError, TimeoutError):
    """A call reached its time limit or was cancelled; the model can be called again."""


class Options(ctypes.Structure):
    """Options of opening a model."""

    _fields_ = (
        ("size", ctypes.c_size_t), ("threads", ctypes.c_int), ("instances", ctypes.c_int),
        ("verify_digests", ctypes.c_int), ("copy_weights", ctypes.c_int),
    )  # fmt: skip


class _Port(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("dtype", ctypes.c_int), ("rank", ctypes.c_int),
        ("shape", _Sizes), ("minimum", _Sizes), ("maximum", _Sizes), ("multiple", _Sizes),
    )  # fmt: skip


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("dtype", ctypes.c_int), ("rank", ctypes.c_int),
        ("shape", _Sizes), ("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t),
        ("owner", ctypes.c_void_p),
    )  # fmt: skip
    array: Array  # of an input: keeps its memory alive


class ExportedPort:
    """An input or output; both bounds of a size of -1 are 0 if it is data-dependent."""

    def __init__(self, port: _Port) -> None:
        self.name: str = port.name.decode()
        self.dtype: str = _DTYPES[port.dtype - 1].name
        self.shape = tuple(port.shape[: port.rank])
        self.minimum, self.maximum = (tuple(e[: port.rank]) for e in (port.minimum, port.maximum))

    def __repr__(self) -> str:
        bounds = zip(self.shape, self.minimum, self.maximum)  # noqa: B905
        sizes = (str(n) if n >= 0 else f"{a} to {b}" if b else "?" for n, a, b in bounds)
        return f"{self.name}: {self.dtype} [{', '.join(sizes)}]"


class ExportedSignature(NamedTuple):
    """Inputs, outputs and threads of a model."""

    inputs: Sequence[ExportedPort]
    outputs: Sequence[ExportedPort]
    threads: int


class _Result:
    """An output in memory of the runtime, which is released with this object."""

    def __init__(self, library: ctypes.CDLL, tensor: _Tensor) -> None:
        self._library, self.tensor = library, _Tensor.from_buffer_copy(tensor)

    def __del__(self) -> None:
        self._library.autopipe_release(ctypes.byref(self.tensor))

    def copy(self) -> Array:
        """Return a copy as an array."""
        tensor = self.tensor
        array = np.empty(tensor.shape[: tensor.rank], _DTYPES[tensor.dtype - 1])
        ctypes.memmove(array.ctypes.data, tensor.data, tensor.bytes)
        return array


class ExportedModel:
    """An open model, which maps arrays by name to arrays by name."""

    def __init__(self, library: ctypes.CDLL, handle: int) -> None:
        self._library, self._handle = library, ctypes.c_uint64(handle)
        self._check = partial(_check_status, library)
        self._close = weakref.finalize(self, library.autopipe_close, self._handle)
        self._close.atexit = False
        self.inputs, self.outputs = list(self._ports("input")), list(self._ports("output"))
        threads = ctypes.c_int()
        self._check(library.autopipe_concurrency(self._handle, ctypes.byref(threads), None))
        self.signature = ExportedSignature(self.inputs, self.outputs, threads.value)

    def __call__(
        self, inputs: Inputs, *, outputs: Arrays | None = None, limit: float | None = None
    ) -> dict[str, Array]:
        """Run once; the outputs are copies that the caller owns.

        `inputs` are arrays by name, a list of them in the order of the model, or the only one.
        Those that are aligned to 64 bytes are read in place. `outputs` are arrays for outputs, by
        name. A call that takes longer than `limit` seconds, waiting included, ends before its next
        kernel. Raises CallError for inputs or outputs that do not fit the model, CallLimitError.
        """
        buffers = outputs or {}
        return _to_arrays(self.run(_to_tensors(self.inputs, inputs), buffers, limit), buffers)

    def run(
        self, inputs: Sequence[_Tensor], buffers: Arrays, limit: float | None
    ) -> dict[str, _Result]:
        """Run once on tensors; return the outputs in memory of the runtime or the caller."""
        ports = {port.name: port for port in self.outputs}
        for name, array in buffers.items():
            _check_buffer(name, array, ports)
        results = (_Tensor * len(ports))(*(_to_output(name, buffers.get(name)) for name in ports))
        self._check(
            self._library.autopipe_run(
                self._handle, (_Tensor * len(inputs))(*inputs), ctypes.c_size_t(len(inputs)),
                results, ctypes.c_size_t(len(results)), ctypes.c_int64(_to_milliseconds(limit)),
            )
        )  # fmt: skip
        outputs = {one.name.decode(): _Result(self._library, one) for one in results}
        for name, array in buffers.items():
            shape = tuple(outputs[name].tensor.shape[: outputs[name].tensor.rank])
            if shape != array.shape:
                raise CallError(f"output {name!r} is {list(shape)}; its array {list(array.shape)}")
        return outputs

    def stream(self, states: Mapping[str, str], start: Arrays | None = None) -> ExportedStream:
        """Return a stream of calls of the model, with states that are kept between steps.

        `states` maps an input to the output that becomes that input in the next call. `start` has
        the states of the first call, zeros by default.
        """
        return ExportedStream(self, states, start)

    def cancel(self) -> None:
        """End the running and waiting calls with a limit, each before its next kernel."""
        self._check(self._library.autopipe_cancel(self._handle))

    def close(self) -> None:
        """Release the model, its threads and its mapping of the weights; later calls fail."""
        self._close()

    def __enter__(self) -> ExportedModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ports(self, kind: str) -> Iterator[ExportedPort]:
        count, port = ctypes.c_size_t(), _Port()
        describe = getattr(self._library, f"autopipe_{kind}")
        self._check(
            getattr(self._library, f"autopipe_{kind}_count")(self._handle, ctypes.byref(count))
        )
        for index in range(count.value):
            self._check(describe(self._handle, ctypes.c_size_t(index), ctypes.byref(port)))
            yield ExportedPort(port)


class ExportedStream:
    """A sequence of calls of a model, with states that stay in the runtime's memory."""

    def __init__(
        self, model: ExportedModel, states: Mapping[str, str], start: Arrays | None
    ) -> None:
        inputs = {port.name: port for port in model.inputs}
        outputs = {port.name: port for port in model.outputs}
        for state, source in states.items():
            if state not in inputs or source not in outputs:
                raise CallError(f"the model has no input {state!r} with an output {source!r}")
            port, origin = inputs[state], outputs[source]
            if (port.shape, port.dtype) != (origin.shape, origin.dtype) or -1 in port.shape:
                raise CallError(f"output {origin} cannot be input {port}")
        self._model, self._names = model, dict(states)
        self._ports = {name: inputs[name] for name in states}
        self._start: dict[str, Array] = {}
        self._held: dict[str, _Result] = {}
        self.reset(start)

    def __call__(
        self, inputs: Arrays, *, outputs: Arrays | None = None, limit: float | None = None
    ) -> dict[str, Array]:
        """Run one step on the inputs that are not states; return the outputs that are not states.

        Otherwise it is like a call of the model; after an error the states are unchanged.
        """
        buffers, states = outputs or {}, set(self._names.values())
        for name in [*(self._ports.keys() & inputs.keys()), *(states & buffers.keys())]:
            raise CallError(f"{name!r} is a state of the stream")
        feeds = [to_tensor(name, array) for name, array in (*inputs.items(), *self._start.items())]
        for name, result in self._held.items():
            feeds.append(_Tensor.from_buffer_copy(result.tensor))
            feeds[-1].name = name.encode()
        results = self._model.run(feeds, buffers, limit)
        self._start, self._held = {}, {taken: results[made] for taken, made in self._names.items()}
        return _to_arrays({name: results[name] for name in results if name not in states}, buffers)

    def reset(self, start: Arrays | None = None) -> None:
        """Restart with the given states by input name, and zeros for the others."""
        start_states = start or {}
        for name, array in start_states.items():
            port = self._ports.get(name)
            if port is None or (array.shape, array.dtype) != (port.shape, np.dtype(port.dtype)):
                raise CallError(f"start: {name!r} is no state, or not {port}")
        zeros = {name: np.zeros(port.shape, port.dtype) for name, port in self._ports.items()}
        copies = {name: np.array(array, order="C") for name, array in start_states.items()}
        self._start, self._held = {**zeros, **copies}, {}

    @property
    def states(self) -> dict[str, Array]:
        """Copies of the states that the next call reads, by input name."""
        return {name: one.copy() for name, one in (self._start or self._held).items()}


def open_package(
    folder: str | Path,
    *,
    threads: int | None = None,
    instances: int = 1,
    verify: bool = False,
    copy_weights: bool = False,
) -> ExportedModel:
    """Open an exported folder. Raises CallError if it cannot be opened.

    It runs on `threads` threads: by default on `$TVM_NUM_THREADS`, or as many as it was tuned for.
    `instances` calls run concurrently. `verify` compares every file with SHA256SUMS first.
    `copy_weights` copies the weights to private memory with large pages instead of mapping them.
    """
    options = to_options(threads, instances)
    options.verify_digests, options.copy_weights = verify, copy_weights
    library = load_library(Path(folder, "lib", "libautopipe.so"), Path(folder, "SHA256SUMS"))
    return open_folder(library, Path(folder), options)


def load_library(path: Path, digests: Path) -> ctypes.CDLL:
    """Load the C library if a file lists its SHA-256, as damage crashes. Raises CallError."""
    try:
        if sha256(path.read_bytes()).hexdigest() not in digests.read_text("utf-8", "replace"):
            raise CallError(f"{path}: damaged, its SHA-256 is not in {digests}", _INVALID_FILE)
        library = ctypes.CDLL(str(path.resolve()))
    except OSError as error:
        raise CallError(str(error), _INVALID_FILE) from None
    library.autopipe_last_error.restype = ctypes.c_char_p
    return library


def to_options(threads: int | None, instances: int) -> Options:
    """Build the options of opening a model. Raises CallError for numbers below one."""
    thread_count: object = os.environ.get("TVM_NUM_THREADS") if threads is None else threads
    for name, value in (("threads", thread_count), ("instances", instances)):
        if value is not None and not (str(value).isdecimal() and int(str(value)) > 0):
            raise CallError(f"{name} is {value!r}; it takes a whole number from 1")
    return Options(ctypes.sizeof(Options), int(str(thread_count or 0)), instances)


def open_folder(library: ctypes.CDLL, folder: Path, options: Options) -> ExportedModel:
    """Open a folder with a loaded C library. Raises CallError."""
    handle, path = ctypes.c_uint64(), os.fsencode(folder.resolve())
    _check_status(library, library.autopipe_open(path, ctypes.byref(options), ctypes.byref(handle)))
    return ExportedModel(library, handle.value)


def _check_status(library: ctypes.CDLL, status: int) -> None:
    if status:
        kind = CallLimitError if status in _LIMITS else CallError
        raise kind(library.autopipe_last_error().decode(errors="replace"), status)


def _to_tensors(ports: Sequence[ExportedPort], inputs: Inputs) -> list[_Tensor]:
    """Convert the inputs to tensors. Raises CallError."""
    if isinstance(inputs, Mapping):
        return [to_tensor(name, array) for name, array in inputs.items()]
    arrays = inputs if isinstance(inputs, (list, tuple)) else [inputs]
    if len(arrays) == len(ports):
        return [to_tensor(port.name, array) for port, array in zip(ports, arrays)]  # noqa: B905
    raise CallError(f"{len(arrays)} inputs are given; the model takes {', '.join(map(str, ports))}")


def to_tensor(name: str, array: object) -> _Tensor:
    """Convert an input to a tensor that shares and keeps the array's memory. Raises CallError."""
    dense = np.asarray(array, order="C")
    code = _CODES.get(dense.dtype)
    if code is None or dense.ndim > _RANK:
        raise CallError(f"input {name!r} is {dense.dtype} {list(dense.shape)}; no model takes it")
    tensor = _Tensor(
        name.encode(), code, dense.ndim, _Sizes(*dense.shape), dense.ctypes.data, dense.nbytes
    )
    tensor.array = dense
    return tensor


def _to_arrays(results: Mapping[str, _Result], buffers: Arrays) -> dict[str, Array]:
    return {name: buffers[name] if name in buffers else one.copy() for name, one in results.items()}


def _to_output(name: str, array: Array | None) -> _Tensor:
    place = {} if array is None else {"data": array.ctypes.data, "bytes": array.nbytes}
    return _Tensor(name=name.encode(), **place)


def _check_buffer(name: str, array: Array, ports: Mapping[str, ExportedPort]) -> None:
    """Raise CallError for an array that does not fit the output of its name."""
    if name not in ports:
        raise CallError(f"the model has no output {name!r}; it returns {', '.join(ports)}")
    port, label = ports[name], f"the array for output {name!r}"
    if not isinstance(array, np.ndarray):
        raise CallError(f"{label} is a {type(array).__name__}")
    fits = array.dtype == np.dtype(port.dtype) and array.ndim == len(port.shape)
    if not fits or any(size not in (-1, array.shape[i]) for i, size in enumerate(port.shape)):
        raise CallError(f"{label} is {array.dtype} {list(array.shape)}; the model returns {port}")
    if not (array.flags.c_contiguous and array.flags.writeable):
        raise CallError(f"{label} is read-only or not contiguous in C order")


def _to_milliseconds(limit: float | None) -> int:
    if limit is None or limit == math.inf:
        return _NO_LIMIT if limit is None else _UNTIL_CANCELLED
    if math.isnan(limit) or limit < 0:
        raise CallError(f"limit is {limit!r}; it takes seconds from 0")
    return math.ceil(limit * 1000)
