"""One session with a device behind TVM's RPC, in a child that may hang and be killed.

TVM's client has no deadlines: whoever holds this child has them.
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
from autopipe.measure.timing import time_library
from autopipe.measure.tracker import Address

_DESCRIBED: Final = {
    "model": "/sys/firmware/devicetree/base/model",
    "processor": "/sys/devices/system/cpu/cpu0/regs/identification/midr_el1",
    "cores": "/sys/devices/system/cpu/present",
    "frequency": "/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq",
    "l2": "/sys/devices/system/cpu/cpu0/cache/index2/size",
}
"""Files by which Linux says what a device is; those that it has not say nothing."""

_LONGEST: Final = 200
"""Characters of such a file, and of what went wrong."""

_MARGIN: Final = 1 << 12
"""Bytes behind each tensor, all of them `_BEHIND`."""

_BEHIND: Final = 0xBF

_EXPIRED: Final = "RPCSessionTimeoutError"
"""How TVM's server begins to say that a session was too long."""


_Result = TypeVar("_Result")


class Lost(Exception):  # noqa: N818 - says what happened
    """The device is not reached any more, or does not do what devices do."""


@dataclass(frozen=True, slots=True)
class LinkedKernel:
    """A library on this machine whose `main` is a kernel for a device."""

    path: str
    ports: tuple[tuple[tuple[int, ...], str], ...]
    """Shape and dtype of each argument."""


class DeviceSession:
    """A device, for as long as one child has it."""

    def __init__(self, address: Address, seconds: float) -> None:
        """Connect. The device's server ends the session after so many seconds. Raises Lost."""
        try:
            self._remote = rpc.connect(address.host, address.port, address.word, seconds)
            self._place = self._remote.cpu(0)
        except Exception as error:  # noqa: BLE001 - whatever TVM raises
            raise Lost(format_error(error)) from None
        self._count = 0

    def described(self) -> dict[str, object]:
        """Return what is known of the device; null for what it does not say. Raises Lost."""
        found: dict[str, object] = {
            name: self._download_text(path) for name, path in _DESCRIBED.items()
        }
        found["threads"] = self._call_device(
            lambda: int(self._find_function("runtime.NumThreads")())
        )
        return found

    def load(self, path: str) -> tvm.runtime.Module:
        """Send a library over, load it there and return it.

        TVM's server says nothing where its disk is full, and half a library ends it: so what has
        arrived is compared first. Raises Lost, and what TVM raises if the device refuses it.
        """
        name = f"candidate{self._count}.so"
        self._count += 1
        data = Path(path).read_bytes()

        def arrived() -> bytes:
            self._remote.upload(bytearray(data), name)
            return bytes(self._remote.download(name))

        found = self._call_device(arrived)
        if found != data:
            raise Lost(f"{len(found)} of {len(data)} bytes arrived: is its disk full?")
        loaded: tvm.runtime.Module = self._run_kernel(lambda: self._remote.load_module(name))
        return loaded

    def made_up(self, kernel: LinkedKernel) -> list[tvm.runtime.Tensor]:
        """Return arguments of a kernel on the device. Raises Lost."""
        made = [make_tensor(*port) for port in kernel.ports]
        return self._call_device(lambda: copy_to_device(made, self._place))

    def time(
        self,
        loaded: tvm.runtime.Module,
        tensors: Sequence[tvm.runtime.Tensor],
        limits: Measure,
        best: float,
    ) -> dict[str, Any]:
        """Return the times of a kernel in a loop. Raises Lost, and what the kernel does."""
        return asdict(
            self._run_kernel(lambda: time_library(loaded, tensors, self._place, limits, best))
        )

    def run(
        self,
        loaded: tvm.runtime.Module,
        arrays: Sequence[np.ndarray],
        counts: Sequence[tuple[int, int]] = (),
    ) -> list[np.ndarray] | None:
        """Return all arguments after one call; None if it wrote behind one. Raises as `time`."""
        wide = self._call_device(lambda: [self._upload_array(array) for array in arrays])
        given: list[object] = [
            tensor._create_view(array.shape, str(array.dtype), 0)  # noqa: SLF001 -- as TVM's own code does
            for tensor, array in zip(wide, arrays, strict=True)
        ]
        for at, count in counts:
            given.insert(at, count)

        def called() -> list[np.ndarray]:
            loaded["main"](*given)
            return [tensor.numpy() for tensor in wide]

        found = self._run_kernel(called)
        if any(
            (data[array.nbytes :] != _BEHIND).any()
            for data, array in zip(found, arrays, strict=True)
        ):
            return None
        return [
            data[: array.nbytes].view(array.dtype).reshape(array.shape)
            for data, array in zip(found, arrays, strict=True)
        ]

    def _upload_array(self, array: np.ndarray) -> tvm.runtime.Tensor:
        """Return the bytes of an array on the device, with known ones behind them."""
        data = np.full(array.nbytes + _MARGIN, _BEHIND, np.uint8)
        data[: array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        tensor = tvm.runtime.empty(data.shape, "uint8", self._place)
        tensor.copyfrom(data)
        return tensor

    def _download_text(self, path: str) -> str | None:
        """Return the text of a small file of the device, null where it has none."""
        try:
            data = bytes(self._remote.download(path))
        except Exception:  # noqa: BLE001 - whatever it is: either the file or the device is gone
            self._check_alive()
            return None
        return data.split(b"\0")[0].decode(errors="replace").strip()[:_LONGEST] or None

    def _run_kernel(self, work: Callable[[], _Result]) -> _Result:
        """Do what runs a kernel; whatever ends the session raises Lost."""
        try:
            return work()
        except Exception as error:
            if _EXPIRED in str(error):
                raise TimeoutError from None
            self._check_alive(format_error(error))
            raise

    def _call_device(self, work: Callable[[], _Result]) -> _Result:
        """Do what only fails where a device does."""
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
    """Return what an error says, in a short line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"[:_LONGEST]


Answer = Mapping[str, Any]


class Answering:
    """Answers requests about a device in a child: `open` it, and whatever a subclass does.

    An answer has one of `ok`, `lost` (the device, and why), `late` (the session was too long) and
    `error` (of the kernel, and which). Nothing is raised.
    """

    session: DeviceSession

    def answer(self, request: Mapping[str, Any]) -> Answer:
        """Do what is asked."""
        try:
            return {"ok": self._run_request(request)}
        except Lost as error:
            return {"lost": str(error)}
        except TimeoutError:
            return {"late": True}
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the kernel's
            return {"error": format_error(error)}

    def _run_request(self, request: Mapping[str, Any]) -> object:
        if request["do"] != "open":
            return self.done(request)
        address = Address(request["host"], request["port"], request["word"])
        self.session = DeviceSession(address, request["seconds"])
        return self.session.described()

    def done(self, request: Mapping[str, Any]) -> object:
        """Do what is asked besides."""
        raise NotImplementedError


class Timing(Answering):
    """Loads kernels on a device, and times them there."""

    def __init__(self, kernels: Sequence[LinkedKernel]) -> None:
        """Take the kernels, which requests name by place."""
        self._kernels = kernels
        self._loaded: dict[int, tuple[tvm.runtime.Module, list[tvm.runtime.Tensor]]] = {}

    def done(self, request: Mapping[str, Any]) -> object:
        """Do `load` or `time`."""
        place = int(request["place"])
        if request["do"] == "load":
            kernel = self._kernels[place]
            self._loaded[place] = self.session.load(kernel.path), self.session.made_up(kernel)
            return None
        limits = Measure.model_validate(request["limits"])
        return self.session.time(*self._loaded[place], limits, float(request["best"]))
