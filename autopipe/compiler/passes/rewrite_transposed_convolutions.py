"""Rewrites transposed convolutions as plain convolutions, for which all schedules work.

With stride s, output i * s + r uses only the taps r, r + s, r + 2 s, ... of the kernel. So the
kernel is split into s kernels of ceil(k / s) taps. One plain convolution computes the s results of
each position as s channels, and a rearrangement puts them beside each other in space ("sub-pixel
convolution", Shi et al., arXiv:1609.07009). TVM's own compute puts zeros between the elements of
the input, and multiplies all the zeros.

Example in one dimension: stride 2 and a kernel of 4 taps, k0 to k3. Output 2 i reads the taps k0
and k2, output 2 i + 1 the taps k1 and k3: two kernels of ceil(4 / 2) = 2 taps.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

import tvm
from tvm import relax, te
from tvm.relax.expr_functor import PyExprMutator, mutator

from autopipe.compiler.graph.convolutions import TRANSPOSED_LAYOUTS, read_layouts
from autopipe.compiler.graph.literals import read_static_shape
from autopipe.compiler.graph.rewrite import rewrite_graph
from autopipe.compiler.passes.convert_layout import ONE_LAYOUT

Extent: TypeAlias = int | tvm.ir.Expr
"""A number of elements: an expression where it hangs on open sizes."""

_DROPPED: Final = 1.1
"""Results that one convolution may compute for each that is kept."""

_COLUMNS: Final = 16
"""Fewest output channels that make a convolution of their own."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """How one spatial axis is computed."""

    stride: int
    taps: int
    """Number of taps of each of the `stride` kernels."""
    pad: tuple[int, int]
    """Padding of the plain convolution, before and after."""
    crop: int
    """Number of results to drop at the start."""
    size: Extent
    """Number of results to keep."""
    steps: Extent
    """Number of positions of the plain convolution; each has `stride` results."""

    @classmethod
    def of(
        cls, data: Extent, kernel: int, stride: int, pad: tuple[int, int], extra: int
    ) -> "_Axis | None":
        """Return how an axis of `data` elements is computed, or None if it is not rewritten.

        Every result has to be computed from at least one tap, and no input is dropped. Where the
        number of elements is open, all results are kept, and there are `stride` for each element.
        """
        if isinstance(data, int):
            axis = cls._build_axis(data, kernel, stride, pad, extra)
            possible = min(axis.pad) >= 0 and axis.crop + axis.size <= axis.steps * stride
            return axis if possible else None
        one = cls.of(1, kernel, stride, pad, extra)
        if one is None or one.crop or (one.size, one.steps) != (stride, 1):
            return None
        return replace(one, size=data * stride, steps=data)

    @classmethod
    def _build_axis(
        cls, data: int, kernel: int, stride: int, pad: tuple[int, int], extra: int
    ) -> "_Axis":
        taps = -(-kernel // stride)
        size = (data - 1) * stride + kernel - pad[0] - pad[1] + extra
        first = min(pad[0] // stride, taps - 1)
        last = min(-(-(pad[0] + size) // stride), data + taps - 1)
        before, after = taps - 1 - first, last - data
        return cls(stride, taps, (before, after), pad[0] - first * stride, size, last - first)

    @property
    def without_crop(self) -> "_Axis":
        """The same with the positions of the results that are kept."""
        assert isinstance(self.size, int)  # noqa: S101 - an open axis has no phases
        return replace(self, crop=0, steps=self.size // self.stride)

    def phases(self, data: Extent, pad: int) -> "list[_Phase]":
        """Return how each of `stride` neighbouring results is computed for itself, [] if it is not.

        `data` is the length of the axis, `pad` what the transposed convolution drops before it.

        Example: 4 taps, stride 2 and padding 1. Results 0, 2, 4, ... read taps 1 and 3 of inputs
        i and i - 1, results 1, 3, 5, ... taps 0 and 2 of inputs i + 1 and i: padding (1, 0) and
        (0, 1). One convolution for both takes padding (1, 1), and its first and last result are
        dropped.
        """
        if not isinstance(data, int) or not isinstance(self.size, int) or self.size % self.stride:
            return []
        found = []
        for result in range(self.stride):
            ahead, kernel = divmod(result + pad, self.stride)
            sides = self.taps - 1 - ahead, self.size // self.stride + ahead - data
            found.append(_Phase(kernel, sides))
        return found if all(min(phase.pad) >= 0 for phase in found) else []


@dataclass(frozen=True, slots=True)
class _Phase:
    """One of the results of each position along an axis."""

    kernel: int
    """Which of the kernels computes it."""
    pad: tuple[int, int]


def _is_whole(axis: _Axis) -> bool:
    """Tell whether all results are kept, as with open sizes."""
    return not isinstance(axis.steps, int) or (
        axis.crop == 0 and axis.size == axis.steps * axis.stride
    )


def rewrite_transposed_convolutions(module: tvm.IRModule) -> tvm.IRModule:
    """Return the module with transposed convolutions as plain ones, where that can be done."""
    return rewrite_graph(_Plain(module), module)


@mutator
class _Plain(PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        layouts = TRANSPOSED_LAYOUTS.get(getattr(call.op, "name", ""))
        if layouts is None:
            return call
        axes = _analyze_axes(call)
        if axes is None:
            return call
        kernel = self._kernel(call, axes)
        convolve = partial(
            getattr(relax.op.nn, f"conv{len(axes)}d"), groups=call.attrs.groups,
            data_layout=layouts[0], kernel_layout=layouts[1], out_dtype=call.attrs.out_dtype,
        )  # fmt: skip
        phases = _choose_phases(call, axes)
        if phases:
            result = self._convolve_phases(call.args[0], kernel, convolve, phases)
            return self._interleave_phases(result, call, [axis.without_crop for axis in axes])
        padding = _flatten_padding([axis.pad for axis in axes])
        result = self.builder_.emit(convolve(call.args[0], kernel, padding=padding))
        return self._interleave_phases(result, call, axes)

    def _convolve_phases(
        self,
        data: relax.Expr,
        kernel: relax.Expr,
        convolve: Callable[..., relax.Expr],
        phases: Sequence[Sequence[_Phase]],
    ) -> relax.Expr:
        """Return the results of each position as channels, of a convolution for each phase."""
        emit, parts = self.builder_.emit, []
        count = math.prod(len(axis) for axis in phases)
        outputs = _list_static_extents(kernel)[0] // count
        for ways in itertools.product(*phases):
            first = 0
            for way, axis in zip(ways, phases, strict=True):
                first = first * len(axis) + way.kernel
            begin, end = [first * outputs], [(first + 1) * outputs]
            own = emit(relax.op.strided_slice(kernel, [0], begin, end))
            padding = _flatten_padding([way.pad for way in ways])
            parts.append(emit(convolve(data, own, padding=padding)))
        return emit(relax.op.concat(parts, 1))

    def _kernel(self, call: relax.Call, axes: Sequence[_Axis]) -> relax.Expr:
        """Return the s kernels as one, in the layout O, I, then the spatial axes."""
        op, emit, weight = relax.op, self.builder_.emit, call.args[1]
        channels, outputs, *sizes = _list_static_extents(weight)
        groups, space = int(call.attrs.groups), len(axes)
        missing = [axis.taps * axis.stride - size for axis, size in zip(axes, sizes, strict=True)]
        if any(missing):
            widths = [0, 0, 0, 0, *(n for more in missing for n in (0, more))]
            weight = emit(op.nn.pad(weight, widths))
        split = [n for axis in axes for n in (axis.taps, axis.stride)]
        parts = emit(op.reshape(weight, [groups, channels // groups, outputs, *split]))
        for tap in range(3, 3 + 2 * space, 2):
            parts = emit(op.flip(parts, tap))
        phases, taps = range(4, 4 + 2 * space, 2), range(3, 3 + 2 * space, 2)
        ordered = emit(op.permute_dims(parts, [0, *phases, 2, 1, *taps]))
        total = groups * outputs * math.prod(axis.stride for axis in axes)
        return emit(op.reshape(ordered, [total, channels // groups, *(a.taps for a in axes)]))

    def _interleave_phases(
        self, result: relax.Expr, call: relax.Call, axes: Sequence[_Axis]
    ) -> relax.Expr:
        """Put the results of each position beside each other in space, and crop."""
        op, emit = relax.op, self.builder_.emit
        batch, groups, space = _list_extents(call.args[0])[0], int(call.attrs.groups), len(axes)
        outputs = _list_static_extents(call.args[1])[1]
        if isinstance(batch, tvm.tirx.Var) and all(isinstance(axis.steps, int) for axis in axes):
            spread = partial(_compute_interleaved, axes=axes, groups=groups, outputs=outputs)
            return self.builder_.emit_te(spread, result, primfunc_name_hint="side_by_side")
        strides, steps = [axis.stride for axis in axes], [axis.steps for axis in axes]
        parts = emit(op.reshape(result, [batch, groups, *strides, outputs, *steps]))
        pairs = [n for axis in range(space) for n in (3 + space + axis, 2 + axis)]
        ordered = emit(op.permute_dims(parts, [0, 1, 2 + space, *pairs]))
        whole = [axis.steps * axis.stride for axis in axes]
        full = emit(op.reshape(ordered, [batch, groups * outputs, *whole]))
        if all(_is_whole(axis) for axis in axes):
            return full
        begin = [axis.crop for axis in axes]
        end = [axis.crop + axis.size for axis in axes]
        return emit(op.strided_slice(full, list(range(2, 2 + space)), begin, end))


def _choose_phases(call: relax.Call, axes: Sequence[_Axis]) -> Sequence[Sequence[_Phase]]:
    """Return how each phase is computed for itself, () where one convolution does for all.

    One computes results that are dropped: of 4 x 4 inputs with 4 x 4 taps and stride 2 it computes
    10 x 10 and keeps 8 x 8. More of them read the input more often, and have fewer columns.
    """
    if call.attrs.groups != 1 or _list_static_extents(call.args[1])[1] < _COLUMNS:
        return ()
    pairs = [(axis.steps * axis.stride, axis.size) for axis in axes]
    if not all(isinstance(n, int) for pair in pairs for n in pair):
        return ()
    computed, kept = (math.prod(sizes) for sizes in zip(*pairs, strict=True))
    data, pads = _list_extents(call.args[0])[2:], call.attrs.padding
    found = [axis.phases(n, int(pad)) for axis, n, pad in zip(axes, data, pads, strict=False)]
    return found if computed > _DROPPED * kept and all(found) else ()


def _flatten_padding(pads: Sequence[tuple[int, int]]) -> list[int]:
    """Return padding as an attribute has it: before all axes, then behind all."""
    befores, afters = zip(*pads, strict=True)
    return [*befores, *afters]


def _compute_interleaved(
    result: te.Tensor, axes: Sequence[_Axis], groups: int, outputs: int
) -> te.Tensor:
    """Return the results beside each other, in one step: a reshape of open sizes copies slowly."""
    phases = math.prod(axis.stride for axis in axes)

    def at(image: tvm.ir.Expr, channel: tvm.ir.Expr, *place: tvm.ir.Expr) -> tvm.ir.Expr:
        phase: tvm.ir.Expr | int = 0
        for axis, one in zip(axes, place, strict=True):
            phase = phase * axis.stride + (one + axis.crop) % axis.stride
        group, output = channel // outputs, channel % outputs
        row = (group * phases + phase) * outputs + output
        whole = [(one + axis.crop) // axis.stride for axis, one in zip(axes, place, strict=True)]
        return result[image, row, *whole]

    shape = [result.shape[0], groups * outputs, *(axis.size for axis in axes)]
    return te.compute(shape, at, name="side_by_side")


def _analyze_axes(call: relax.Call) -> list[_Axis] | None:
    """Return how each spatial axis is computed, or None for a form that is not rewritten."""
    attrs = call.attrs
    image, weight = _list_extents(call.args[0]), _list_static_extents(call.args[1])
    plain = read_layouts(call) == ONE_LAYOUT[call.op.name]
    if not (plain and image and weight) or any(int(step) != 1 for step in attrs.dilation):
        return None
    data, kernel = image[2:], weight[2:]
    space = len(data)
    pads = [int(n) for n in attrs.padding]
    extra = [int(n) for n in attrs.output_padding]
    strides = [  # of one element each result has a tap of its own, whatever the stride is
        kernel[i] + extra[i] if isinstance(data[i], int) and data[i] == 1 else int(stride)
        for i, stride in enumerate(attrs.strides)
    ]
    axes = [
        _Axis.of(data[i], kernel[i], strides[i], (pads[i], pads[i + space]), extra[i])
        for i in range(space)
    ]
    found = [axis for axis in axes if axis is not None]
    return found if len(found) == space else None


def _list_static_extents(expr: relax.Expr) -> list[int]:
    """Return the extents of a tensor, or [] if one is not known."""
    return list(read_static_shape(expr) or ())


def _list_extents(expr: relax.Expr) -> list[Extent]:
    """Return the extents of a tensor, open ones as expressions, or [] if there is no shape."""
    shape = expr.ty.shape
    if not isinstance(shape, relax.ShapeExpr):
        return []
    return [int(n) if isinstance(n, tvm.tirx.IntImm) else n for n in shape.values]
