"""Describes a reduction by the number of steps per output, which may depend on the output.

Example: adaptive pooling of 56 rows to 6 sums windows of 9 to 11 rows. TVM has an outer block
of the outputs, and in it a block that reduces: its steps are `(i * 56 + 61) // 6 - i * 56 // 6`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import tvm
import tvm_ffi
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock, SBlockRealize
from tvm.tirx import For

from autopipe.schedules.analysis.blocks import (
    ALWAYS,
    SPATIAL,
    Extent,
    bind_axes,
    bind_extents,
    extent_of,
    extents_of,
    variables_of,
)
from autopipe.schedules.analysis.boundaries import find_stride
from autopipe.schedules.analysis.expressions import (
    Values,
    count_occurrences,
    flat_index,
    replace_variables,
)
from autopipe.schedules.analysis.reducer import Reducer

_PAIR_VALUES: Final = 2


@dataclass(frozen=True, slots=True)
class Reduction:
    """A reduction: its outputs, reducer and steps."""

    block: SBlock
    """The outermost block."""
    reducer: Reducer
    axes: Sequence[Any]
    """The variables of the outputs' axes."""
    extents: tuple[int, ...]
    """Number of outputs along each."""
    sums: Sequence[Any]
    """The variables of the steps, the outermost first."""
    steps: tuple[Extent, ...]
    """Number of steps along each; expressions of `axes` where it depends on the output."""

    @classmethod
    def of(cls, block: SBlock) -> "Reduction | None":
        """Describe the reduction of a block, or return None if it has none."""
        spatial, reduction_axes = (variables_of(block, spatial=kind) for kind in (True, False))
        extents, terms = extents_of(block), extents_of(block, spatial=False)
        if min([*extents, *terms, 1]) < 1:
            return None
        if terms:
            reducer = Reducer.of(block)
            if reducer is None:
                return None
            reducer = reducer.evened(bind_axes(block))
            return cls(block, reducer, spatial, extents, reduction_axes, terms).in_rows()
        return cls._read_nested(block, spatial, extents)

    @classmethod
    def _read_nested(
        cls, block: SBlock, axes: Sequence[Any], extents: tuple[int, ...]
    ) -> "Reduction | None":
        """Describe the reduction of the only block inside a block."""
        loops, realize = _find_inner_block(block.body)
        if realize is None or block.init is not None:
            return None
        inner = realize.block
        reducer = Reducer.of(inner)
        pairs = list(zip(inner.iter_vars, realize.iter_values, strict=True))
        axis_values: Values = [
            (axis.var, value) for axis, value in pairs if axis.iter_type == SPATIAL
        ]
        step_values = [(axis.var, value) for axis, value in pairs if axis.iter_type != SPATIAL]
        is_loop_variable = [
            value.same_as(loop.loop_var)
            for (_, value), loop in zip(step_values, loops, strict=False)
        ]
        if reducer is None or len(step_values) != len(loops) or not all(is_loop_variable):
            return None
        if any(
            count_occurrences(value, loop.loop_var) for _, value in axis_values for loop in loops
        ):
            return None
        steps = tuple(extent_of(replace_variables(loop.extent, [])) for loop in loops)
        if any(count_occurrences(loop.extent, other.loop_var) for loop in loops for other in loops):
            return None
        return cls(
            block, reducer.at(axis_values), axes, extents, [var for var, _ in step_values], steps
        )

    def in_rows(self) -> "Reduction":
        """Fuse the last reduction axes where all operands are contiguous along them.

        Example: the sum of images of 28 x 28 pixels is the sum of rows of 784.
        """
        if len(self.sums) < _PAIR_VALUES or not all(isinstance(step, int) for step in self.steps):
            return self
        *outer, high, low = self.sums
        *before, rows, length = map(int, self.steps)
        offsets = [flat_index(load.source, load.indices) for load in self.loads]
        strides = [find_stride(offset, var) for offset in offsets for var in (low, high)]
        pairs = list(zip(strides[::2], strides[1::2], strict=True))
        if any(one is None or other is None or other != one * length for one, other in pairs):
            return self
        joint = tvm.tirx.Var(f"{high.name}_{low.name}", low.ty)
        reducer = self.reducer.at([(high, joint // length), (low, joint % length)])
        steps = (*before, rows * length)
        return replace(self, reducer=reducer, sums=[*outer, joint], steps=steps).in_rows()

    def narrowed(self) -> "Reduction":
        """Narrow int64 positions to int32 where they fit."""
        if not self.constant:
            return self
        pairs = [*zip(self.axes, self.extents, strict=True),
                 *zip(self.sums, map(int, self.steps), strict=True)]  # fmt: skip
        return replace(self, reducer=self.reducer.narrowed(bind_extents(pairs)))

    @property
    def loads(self) -> list[TensorLoad]:
        """The loads of operands, without repetitions."""
        return self.reducer.operands()

    @property
    def constant(self) -> bool:
        """Whether all outputs have the same number of steps."""
        return all(isinstance(step, int) for step in self.steps)

    def hangs_on(self, axis: int) -> bool:
        """Tell whether the number of steps depends on an axis of the output."""
        open_steps = [step for step in self.steps if not isinstance(step, int)]
        return any(count_occurrences(step, self.axes[axis]) for step in open_steps)


def _find_inner_block(statement: tvm.tirx.Stmt) -> tuple[list[For], SBlockRealize | None]:
    """Return the loops around the only block of a statement; None if there is more in it."""
    loops: list[For] = []
    while isinstance(statement, For):
        if not isinstance(statement.min, tvm.tirx.IntImm) or int(statement.min):
            return [], None
        loops.append(statement)
        statement = statement.body
    if isinstance(statement, SBlockRealize) and tvm_ffi.structural_equal(
        statement.predicate, ALWAYS
    ):
        return loops, statement
    return loops, None
