"""Watches what a virtual machine of TVM calls: kernels, and builtins such as allocations.

TVM asks an *instrument* before and after each call. Before it, the instrument may make the call
itself, and have the machine skip it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from autopipe.compiler.library.call_limit import VirtualMachine

if TYPE_CHECKING:
    from tvm_ffi import Function

_SKIP: Final = 1
"""What tells the virtual machine not to make a call."""


class CallWatch(Protocol):
    """Is asked about each call."""

    def begin(self, function: "Function", symbol: str, given: Sequence[Any]) -> bool:
        """Look at a call before it is made; return whether it was made here in its place."""

    def end(self, symbol: str) -> None:
        """Look at a call that the machine has made."""


def set_watch(machine: VirtualMachine, watch: CallWatch | None) -> None:
    """Have the calls of a loaded library watched; None ends it."""
    from tvm_ffi import convert

    if watch is None:
        machine["set_instrument"](None)
        return

    def called(
        function: "Function | None",
        symbol: str,
        before: bool,  # noqa: FBT001 - as TVM calls it
        _: object,
        *given: object,
    ) -> int:
        if not before:
            watch.end(symbol)
            return 0
        return _SKIP if function is not None and watch.begin(function, symbol, given) else 0

    machine["set_instrument"](convert(called))
