"""Estimates the time per element of elementwise functions on one thread.

It decides whether a second thread pays: starting one and waiting for it takes some microseconds.
The number of elements alone does not decide. Zeros are written at 0.05 ns each, sums of two tensors
take three times as long, and elementary functions that LLVM does not vectorize a hundred times.

Example: 65536 sums of two tensors of floats move 12 bytes each, 0.13 ns, and take 9 us in all. Two
threads take 4.5 us, and 2 us to start. 65536 zeros take 3 us: one thread writes them. On a Zen 5
such sums take 3.3 us outside a model, and run on one thread as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import tvm
from tvm.ir import Call, TensorLoad
from tvm.s_tir import SBlock

from autopipe.compiler.find_nodes import find_nodes
from autopipe.compiler.graph import elementary
from autopipe.schedules import cost
from autopipe.schedules.analysis.blocks import element_bits
from autopipe.schedules.analysis.expressions import BRANCH, remove_repeated_loads
from autopipe.schedules.analysis.rows import count_iterations
from autopipe.schedules.hardware import HardwareParams

_GATHERED: Final = 0.25
"""Nanoseconds for an element that is gathered, or loaded with a large stride."""

_VECTOR_CALL_NS, _LIBM_CALL_NS = 0.4, 3.0
"""Nanoseconds for an elementary function in vectors, and for a function of libm, such as `fmod` for
the remainder of two floats."""

_FREE: Final = frozenset({BRANCH}) | {
    f"tirx.{name}"
    for name in ("fabs", "floor", "ceil", "trunc", "round", "isnan", "isinf", "isfinite",
                 "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "reinterpret")
}  # fmt: skip


def estimate_call_ns(block: SBlock) -> float:
    """Return the nanoseconds that the elementary functions of all runs of a block take."""
    calls = find_nodes(block.body, Call)
    return max(0, count_iterations(block)) * sum(
        map(_estimate_one_call_ns, filter(is_elementary, calls))
    )


@dataclass(frozen=True, slots=True)
class Effort:
    """The cost of an element on one thread."""

    bytes: float = 0.0
    """Bytes that are read and written sequentially."""
    nanoseconds: float = 0.0
    """Time of gathers and elementary functions."""

    def pays(self, elements: int, hardware: HardwareParams) -> bool:
        """Tell whether a second thread pays for `elements` elements."""
        traffic = elements * self.bytes
        nanoseconds = cost.copy_ns(traffic, hardware) + elements * self.nanoseconds
        return cost.threads_pay(nanoseconds, hardware.machine)


def estimate_element_effort(
    value: tvm.ir.Expr, bits: int, loads: Sequence[tuple[TensorLoad, float]]
) -> Effort:
    """Return the cost of an output element of `bits` bits that is computed as `value`.

    `loads` gives the new elements that each load takes from memory for an output: 1 for stride 1,
    less where neighbours load the same element, 0 for gathers and large strides.
    """
    calls = find_nodes(value, Call)
    unique_loads = remove_repeated_loads([load for load, _ in loads])
    shares = [next(share for one, share in loads if one.same_as(load)) for load in unique_loads]
    traffic = bits / 8
    traffic += sum(
        share * element_bits(load.source.dtype) / 8
        for share, load in zip(shares, unique_loads, strict=True)
    )
    gather_ns = _GATHERED * shares.count(0)
    modulo_nodes = find_nodes(value, tvm.tirx.Mod)
    remainders = _LIBM_CALL_NS * sum(
        one.expr_ty().dtype.startswith("float") for one in modulo_nodes
    )
    return Effort(traffic, gather_ns + remainders + sum(map(_estimate_one_call_ns, calls)))


def is_elementary(call: Call) -> bool:
    """Tell whether a call is of an elementary function that is computed in vectors."""
    return getattr(call.op, "name", "") in elementary.IN_VECTORS


def _estimate_one_call_ns(call: Call) -> float:
    name = getattr(call.op, "name", "")
    if name in _FREE:
        return 0.0
    return _VECTOR_CALL_NS if name in elementary.IN_VECTORS else _LIBM_CALL_NS
