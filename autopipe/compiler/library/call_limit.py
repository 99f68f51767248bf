"""Time limits and cancellation of calls: a call ends between two kernels."""

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from autopipe.config.problem import format_value
from autopipe.errors import CallLimitError, ConfigError

if TYPE_CHECKING:
    from tvm.runtime import Tensor


class CallLimit:
    """The moment at which a call ends at the latest; earlier if it is cancelled."""

    def __init__(self, seconds: float) -> None:
        """Start the timer. Raises ConfigError if `seconds` is no duration."""
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not is_number or math.isnan(seconds) or seconds < 0:
            raise ConfigError(f"limit is {format_value(seconds)}; it takes seconds from 0")
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        self._is_cancelled = False

    def cancel(self) -> None:
        """End the call before its next kernel."""
        self._is_cancelled = True

    def is_over(self) -> bool:
        """Tell whether the call has to end."""
        return self._is_cancelled or time.monotonic() >= self._deadline

    def remaining(self) -> float:
        """Return the seconds left, at most the longest timeout of a lock."""
        return min(max(self._deadline - time.monotonic(), 0), threading.TIMEOUT_MAX)

    def error(self) -> CallLimitError:
        """Return the error of a call that ended."""
        if self._is_cancelled:
            return CallLimitError("the call was cancelled")
        return CallLimitError(f"the call did not end within its limit of {self._seconds:g} s")


class CallLimits:
    """The limits of the running calls of a model."""

    def __init__(self) -> None:
        self._running: set[CallLimit] = set()

    @contextmanager
    def start(self, limit: float | CallLimit) -> Iterator[CallLimit]:
        """Yield the limit of a call while it runs; a `CallLimit` is passed on as it is."""
        if isinstance(limit, CallLimit):
            yield limit
            return
        running_limit = CallLimit(limit)
        self._running.add(running_limit)
        try:
            yield running_limit
        finally:
            self._running.discard(running_limit)

    def cancel(self) -> None:
        """End the calls that run or wait now."""
        for limit in self._running.copy():
            limit.cancel()


class VirtualMachine(Protocol):
    """The virtual machine of a library: its functions by name."""

    def __getitem__(self, name: str, /) -> Callable[..., Any]: ...


def call_within(
    limit: CallLimit, machine: VirtualMachine, arguments: Sequence[Any]
) -> "Tensor | Sequence[Tensor]":
    """Call `main` of a machine and check the limit before each kernel. Raises CallLimitError.

    A check takes a microsecond or two; a call without a limit makes none.
    """
    from tvm_ffi import convert

    is_ended = False

    def watch(*_: object) -> None:
        nonlocal is_ended
        if limit.is_over():
            is_ended = True
            raise RuntimeError  # through the virtual machine, which unwinds

    main: Callable[..., Tensor | Sequence[Tensor]] = machine["main"]
    machine["set_instrument"](convert(watch))
    try:
        return main(*arguments)
    except RuntimeError:
        if is_ended:
            raise limit.error() from None
        raise
    finally:
        machine["set_instrument"](None)
