"""One session with a device behind TVM's RPC, in a child that may hang and be killed.

TVM's client has no deadlines: the parent of the child enforces them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import tvm
from tvm import rpc

from autopipe.config.tuning import Measure
from autopipe.measure.device import copy_to_device
from autopipe.measure.tensors import make_tensor
from autopipe.measure.timing import TimedCall, time_call
from autopipe.measure.tracker import Address

_DESCRIBED: Final = {
    "model": "/sys/firmware/devicetree/base/model",
    "processor": "/sys/devices/system/cpu/cpu0/regs/identification/midr_el1",
    "cores": "/sys/devices/system/cpu/present",
    "frequency": "/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq",
    "l2": "/sys/devices/system/cpu/cpu0/cache/index2/size",
}
"""Files in which Linux describes a device; missing ones are omitted."""

_MAX_TEXT_CHARACTERS: Final = 200
"""Maximum characters of a description file, and of an error."""

_TAIL_BYTES: Final = 1 << 12
"""Bytes behind each tensor, all of them `_BEHIND`."""

_BEHIND: Final = 0xBF

_EXPIRED: Final = "RPCSessionTimeoutError"
"""Part of the error of TVM's server for a session that exceeds its time."""


_Result = TypeVar("_Result")


class Lost(Exception):  # noqa: N818 - says what happened
    """The device is unreachable, or violates the protocol."""


@dataclass(frozen=True, slots=True)
class LinkedKernel:
    """A library on this machine with a kernel for a device as `main`."""

    path: str
    ports: tuple[tuple[tuple[int, ...], str], ...]
    """Shape and dtype of each argument."""


class DeviceSession:
    """A device that one child holds."""

    def __init__(self, address: Address, seconds: float) -> None:
        """Connect. The device's server ends the session after `seconds`. Raises Lost."""
        try:
            self._remote = rpc.connect(address.host, address.port, address.word, seconds)
            self._place = self._remote.cpu(0)
        except Exception as error:  # noqa: BLE001 - whatever TVM raises
            raise Lost(format_error(error)) from None
        self._count = 0

    def described(self) -> dict[str, object]:
        """Describe the device; None for unknown properties. Raises Lost."""
        properties: dict[str, object] = {
            name: self._download_text(path) for name, path in _DESCRIBED.items()
        }
        properties["threads"] = self._call_device(
            lambda: int(self._find_function("runtime.NumThreads")())
        )
        return properties

    def load(self, path: str) -> tvm.runtime.Module:
        """Upload a library, load it on the device and return it.

        TVM's server does not report a full disk, and crashes on a truncated library: so the upload
        is compared first. Raises Lost, and TVM's error if the device refuses it.
        """
        name = f"candidate{self._count}.so"
        self._count += 1
        data = Path(path).read_bytes()

        def arrived() -> bytes:
            self._remote.upload(bytearray(data), name)
            return bytes(self._remote.download(name))

        received_bytes = self._call_device(arrived)
        if received_bytes != data:
            raise Lost(f"{len(received_bytes)} of {len(data)} bytes arrived: is its disk full?")
        library: tvm.runtime.Module = self._run_kernel(lambda: self._remote.load_module(name))
        return library

    def made_up(self, kernel: LinkedKernel) -> list[tvm.runtime.Tensor]:
        """Create synthetic arguments of a kernel on the device. Raises Lost."""
        arguments = [make_tensor(*port) for port in kernel.ports]
        return self._call_device(lambda: copy_to_device(arguments, self._place))

    def time(
        self,
        library: tvm.runtime.Module,
        tensors: Sequence[tvm.runtime.Tensor],
        limits: Measure,
        best: float,
    ) -> dict[str, Any]:
        """Time a kernel in a loop. Raises Lost, and the kernel's errors."""
        call = TimedCall(library, tensors, self._place)
        return asdict(self._run_kernel(lambda: time_call(call, limits, best)))

    def run(
        self,
        library: tvm.runtime.Module,
        arrays: Sequence[np.ndarray],
        counts: Sequence[tuple[int, int]] = (),
    ) -> list[np.ndarray] | None:
        """Return all arguments after one call; None if it wrote past one. Raises as `time`."""
        wide = self._call_device(lambda: [self._upload_array(array) for array in arrays])
        arguments: list[object] = [
            tensor._create_view(array.shape, str(array.dtype), 0)  # noqa: SLF001 -- as TVM's own code does
            for tensor, array in zip(wide, arrays, strict=True)
        ]
        for at, count in counts:
            arguments.insert(at, count)

        def called() -> list[np.ndarray]:
            library["main"](*arguments)
            return [tensor.numpy() for tensor in wide]

        buffers = self._run_kernel(called)
        if any(
            (data[array.nbytes :] != _BEHIND).any()
            for data, array in zip(buffers, arrays, strict=True)
        ):
            return None
        return [
            data[: array.nbytes].view(array.dtype).reshape(array.shape)
            for data, array in zip(buffers, arrays, strict=True)
        ]

    def _upload_array(self, array: np.ndarray) -> tvm.runtime.Tensor:
        """Copy the bytes of an array to the device, followed by a margin of known bytes."""
        data = np.full(array.nbytes + _TAIL_BYTES, _BEHIND, np.uint8)
        data[: array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        tensor = tvm.runtime.empty(data.shape, "uint8", self._place)
        tensor.copyfrom(data)
        return tensor

    def _download_text(self, path: str) -> str | None:
        """Download the text of a small file of the device; None if it is missing."""
        try:
            data = bytes(self._remote.download(path))
        except Exception:  # noqa: BLE001 - either the file or the device is gone
            self._check_alive()
            return None
        return data.split(b"\0")[0].decode(errors="replace").strip()[:_MAX_TEXT_CHARACTERS] or None

    def _run_kernel(self, work: Callable[[], _Result]) -> _Result:
        """Run work that calls a kernel; errors that end the session raise Lost."""
        try:
            return work()
        except Exception as error:
            if _EXPIRED in str(error):
                raise TimeoutError from None
            self._check_alive(format_error(error))
            raise

    def _call_device(self, work: Callable[[], _Result]) -> _Result:
        """Run work that fails only with the device, which raises Lost."""
        try:
            return work()
        except Exception as error:  # noqa: BLE001 - whatever TVM raises
            raise Lost(format_error(error)) from None

    def _check_alive(self, why: str = "") -> None:
        """Raise Lost if the device does not answer any more."""
        try:
            self._find_function("tvm.rpc.server.upload")
        except Exception as error:  # noqa: BLE001 - whatever TVM raises
            raise Lost(why or format_error(error)) from None

    def _find_function(self, name: str) -> Callable[..., Any]:
        function: Callable[..., Any] = self._remote.get_function(name)
        return function


def format_error(error: BaseException) -> str:
    """Format an error as a short line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"[:_MAX_TEXT_CHARACTERS]


Answer = Mapping[str, Any]


class Answering:
    """Answers requests about a device in a child: `open`, and those of a subclass.

    An answer has one of `ok`, `lost` (the device, with the reason), `late` (the session was too
    long) and `error` (of the kernel). Nothing is raised.
    """

    session: DeviceSession

    def answer(self, request: Mapping[str, Any]) -> Answer:
        """Answer a request."""
        try:
            return {"ok": self._run_request(request)}
        except Lost as error:
            return {"lost": str(error)}
        except TimeoutError:
            return {"late": True}
        except Exception as error:  # noqa: BLE001 - any other error is the kernel's
            return {"error": format_error(error)}

    def _run_request(self, request: Mapping[str, Any]) -> object:
        if request["do"] != "open":
            return self.done(request)
        address = Address(request["host"], request["port"], request["word"])
        self.session = DeviceSession(address, request["seconds"])
        return self.session.described()

    def done(self, request: Mapping[str, Any]) -> object:
        """Perform a request other than `open`."""
        raise NotImplementedError


class Timing(Answering):
    """Loads kernels on a device, and times them there."""

    def __init__(self, kernels: Sequence[LinkedKernel]) -> None:
        """Set the kernels, which requests identify by index."""
        self._kernels = kernels
        self._loaded: dict[int, tuple[tvm.runtime.Module, list[tvm.runtime.Tensor]]] = {}

    def done(self, request: Mapping[str, Any]) -> object:
        """Perform `load` or `time`."""
        place = int(request["place"])
        if request["do"] == "load":
            kernel = self._kernels[place]
            self._loaded[place] = self.session.load(kernel.path), self.session.made_up(kernel)
            return None
        limits = Measure.model_validate(request["limits"])
        return self.session.time(*self._loaded[place], limits, float(request["best"]))
