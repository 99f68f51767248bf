"""Intercept the calls of a TVM virtual machine: kernels, and builtins such as allocations.

TVM invokes an *instrument* before and after each call. Before it, the instrument may make the call
itself, and tell the machine to skip it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from autopipe.compiler.library.call_limit import VirtualMachine

if TYPE_CHECKING:
    from tvm_ffi import Function

_SKIP: Final = 1
"""Result of an instrument that makes the virtual machine skip a call."""


class CallWatch:
    """Observes each call."""

    def begin(self, function: "Function", symbol: str, arguments: Sequence[Any]) -> bool:
        """Observe a call before it is made; return whether it was made here instead."""
        raise NotImplementedError

    def end(self, symbol: str) -> None:
        """Observe a call that the machine has made; most watches need no look at it."""


def set_watch(machine: VirtualMachine, watch: CallWatch | None) -> None:
    """Install a watch on the calls of a loaded library; None removes it."""
    from tvm_ffi import convert

    if watch is None:
        machine["set_instrument"](None)
        return

    def called(
        function: "Function | None",
        symbol: str,
        before: bool,  # noqa: FBT001 - as TVM calls it
        _: object,
        *arguments: object,
    ) -> int:
        if not before:
            watch.end(symbol)
            return 0
        return _SKIP if function is not None and watch.begin(function, symbol, arguments) else 0

    machine["set_instrument"](convert(called))
