"""Rewrite transposed convolutions as plain convolutions, for which all schedules work.

With stride s, output i * s + r uses only the taps r, r + s, r + 2 s, ... of the kernel. So the
kernel is split into s kernels of ceil(k / s) taps. One plain convolution computes the s results of
each position as s channels, which are then interleaved in space ("sub-pixel convolution", Shi et
al., arXiv:1609.07009). TVM's own tensor expression inserts zeros between the elements of the input,
and multiplies all of them.

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

from autopipe.compiler.graph.convolutions import TRANSPOSED_LAYOUTS, read_layouts
from autopipe.compiler.graph.literals import read_static_shape
from autopipe.compiler.graph.rewrite import CallSite, rewrite_calls
from autopipe.compiler.passes.convert_layout import ONE_LAYOUT

Extent: TypeAlias = int | tvm.ir.Expr
"""An extent: an expression if it is dynamic."""

_DROPPED: Final = 1.1
"""Largest ratio of computed to kept results of a single convolution."""

_COLUMNS: Final = 16
"""Fewest output channels for one convolution per phase."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """Parameters of the plain convolution along one spatial axis."""

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
        """Compute the parameters of an axis of `data` elements, or None if it is not rewritten.

        Every result has to be computed from at least one tap, and no input is dropped. For a
        dynamic extent all results are kept, and there are `stride` for each element.
        """
        if isinstance(data, int):
            axis = cls._build_axis(data, kernel, stride, pad, extra)
            possible = min(axis.pad) >= 0 and axis.crop + axis.size <= axis.steps * stride
            return axis if possible else None
        unit_axis = cls.of(1, kernel, stride, pad, extra)
        if unit_axis is None or unit_axis.crop or (unit_axis.size, unit_axis.steps) != (stride, 1):
            return None
        return replace(unit_axis, size=data * stride, steps=data)

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
        """The same axis without crop, at the positions of the kept results."""
        assert isinstance(self.size, int)  # noqa: S101 - a dynamic axis has no phases
        return replace(self, crop=0, steps=self.size // self.stride)

    def phases(self, data: Extent, pad: int) -> "list[_Phase]":
        """Return the convolution of each of `stride` neighbouring results, [] if not possible.

        `data` is the extent of the axis, `pad` the crop of the transposed convolution before it.

        Example: 4 taps, stride 2 and padding 1. Results 0, 2, 4, ... read taps 1 and 3 of inputs
        i and i - 1, results 1, 3, 5, ... taps 0 and 2 of inputs i + 1 and i: padding (1, 0) and
        (0, 1). One convolution for both takes padding (1, 1), and its first and last result are
        dropped.
        """
        if not isinstance(data, int) or not isinstance(self.size, int) or self.size % self.stride:
            return []
        phases = []
        for result in range(self.stride):
            ahead, kernel = divmod(result + pad, self.stride)
            sides = self.taps - 1 - ahead, self.size // self.stride + ahead - data
            phases.append(_Phase(kernel, sides))
        return phases if all(min(phase.pad) >= 0 for phase in phases) else []


@dataclass(frozen=True, slots=True)
class _Phase:
    """One of the `stride` results of each position along an axis."""

    kernel: int
    """The index of its kernel."""
    pad: tuple[int, int]


def _is_whole(axis: _Axis) -> bool:
    """Tell whether all results are kept, as for dynamic extents."""
    return not isinstance(axis.steps, int) or (
        axis.crop == 0 and axis.size == axis.steps * axis.stride
    )


def rewrite_transposed_convolutions(module: tvm.IRModule) -> tvm.IRModule:
    """Rewrite the transposed convolutions of a module as plain ones, where possible."""
    return rewrite_calls(_rewrite_convolution, module)


def _rewrite_convolution(site: CallSite) -> relax.Expr:
    call, layouts = site.call, TRANSPOSED_LAYOUTS.get(site.op)
    axes = None if layouts is None else _analyze_axes(call)
    if layouts is None or axes is None:
        return call
    kernel = _build_kernel(site, axes)
    convolve = partial(
        getattr(relax.op.nn, f"conv{len(axes)}d"), groups=call.attrs.groups,
        data_layout=layouts[0], kernel_layout=layouts[1], out_dtype=call.attrs.out_dtype,
    )  # fmt: skip
    phases = _choose_phases(call, axes)
    if phases:
        result = _convolve_phases(site, call.args[0], kernel, convolve, phases)
        return _interleave_phases(site, result, [axis.without_crop for axis in axes])
    padding = _flatten_padding([axis.pad for axis in axes])
    result = site.emit(convolve(call.args[0], kernel, padding=padding))
    return _interleave_phases(site, result, axes)


def _convolve_phases(
    site: CallSite,
    data: relax.Expr,
    kernel: relax.Expr,
    convolve: Callable[..., relax.Expr],
    phases: Sequence[Sequence[_Phase]],
) -> relax.Expr:
    """Compute the results of each position as channels, by one convolution per phase."""
    emit, parts = site.emit, []
    count = math.prod(len(axis) for axis in phases)
    outputs = int(kernel.ty.shape.values[0]) // count
    for ways in itertools.product(*phases):
        first = 0
        for way, axis in zip(ways, phases, strict=True):
            first = first * len(axis) + way.kernel
        begin, end = [first * outputs], [(first + 1) * outputs]
        phase_kernel = emit(relax.op.strided_slice(kernel, [0], begin, end))
        padding = _flatten_padding([way.pad for way in ways])
        parts.append(emit(convolve(data, phase_kernel, padding=padding)))
    return emit(relax.op.concat(parts, 1))


def _build_kernel(site: CallSite, axes: Sequence[_Axis]) -> relax.Expr:
    """Concatenate the s kernels, in the layout O, I, then the spatial axes."""
    call, op, emit, weight = site.call, relax.op, site.emit, site.call.args[1]
    channels, outputs, *sizes = map(int, weight.ty.shape.values)
    groups, space = int(call.attrs.groups), len(axes)
    missing = [axis.taps * axis.stride - size for axis, size in zip(axes, sizes, strict=True)]
    if any(missing):
        widths = [0, 0, 0, 0, *(n for count in missing for n in (0, count))]
        weight = emit(op.nn.pad(weight, widths))
    split_shape = [n for axis in axes for n in (axis.taps, axis.stride)]
    parts = emit(op.reshape(weight, [groups, channels // groups, outputs, *split_shape]))
    for tap in range(3, 3 + 2 * space, 2):
        parts = emit(op.flip(parts, tap))
    phases, taps = range(4, 4 + 2 * space, 2), range(3, 3 + 2 * space, 2)
    permuted_kernel = emit(op.permute_dims(parts, [0, *phases, 2, 1, *taps]))
    total = groups * outputs * math.prod(axis.stride for axis in axes)
    return emit(op.reshape(permuted_kernel, [total, channels // groups, *(a.taps for a in axes)]))


def _interleave_phases(site: CallSite, result: relax.Expr, axes: Sequence[_Axis]) -> relax.Expr:
    """Interleave the results of each position in space, and crop."""
    call, op, emit = site.call, relax.op, site.emit
    batch, groups, space = _list_extents(call.args[0])[0], int(call.attrs.groups), len(axes)
    outputs = int(call.args[1].ty.shape.values[1])
    if isinstance(batch, tvm.tirx.Var) and all(isinstance(axis.steps, int) for axis in axes):
        spread = partial(_compute_interleaved, axes=axes, groups=groups, outputs=outputs)
        return site.builder.emit_te(spread, result, primfunc_name_hint="side_by_side")
    strides, steps = [axis.stride for axis in axes], [axis.steps for axis in axes]
    parts = emit(op.reshape(result, [batch, groups, *strides, outputs, *steps]))
    pairs = [n for axis in range(space) for n in (3 + space + axis, 2 + axis)]
    permuted_parts = emit(op.permute_dims(parts, [0, 1, 2 + space, *pairs]))
    full_sizes = [axis.steps * axis.stride for axis in axes]
    full = emit(op.reshape(permuted_parts, [batch, groups * outputs, *full_sizes]))
    if all(_is_whole(axis) for axis in axes):
        return full
    begin = [axis.crop for axis in axes]
    end = [axis.crop + axis.size for axis in axes]
    return emit(op.strided_slice(full, list(range(2, 2 + space)), begin, end))


def _choose_phases(call: relax.Call, axes: Sequence[_Axis]) -> Sequence[Sequence[_Phase]]:
    """Return the phases of each axis if they are convolved separately, () for one convolution.

    A single one computes results that are dropped: of 4 x 4 inputs with 4 x 4 taps and stride 2 it
    computes 10 x 10 and keeps 8 x 8. Several read the input more often, and have fewer columns.
    """
    if call.attrs.groups != 1 or int(call.args[1].ty.shape.values[1]) < _COLUMNS:
        return ()
    pairs = [(axis.steps * axis.stride, axis.size) for axis in axes]
    if not all(isinstance(n, int) for pair in pairs for n in pair):
        return ()
    computed_count, result_count = (math.prod(sizes) for sizes in zip(*pairs, strict=True))
    data, pads = _list_extents(call.args[0])[2:], call.attrs.padding
    phases = [axis.phases(n, int(pad)) for axis, n, pad in zip(axes, data, pads, strict=False)]
    return phases if computed_count > _DROPPED * result_count and all(phases) else ()


def _flatten_padding(pads: Sequence[tuple[int, int]]) -> list[int]:
    """Flatten padding to the order of the attribute: before all axes, then after all."""
    befores, afters = zip(*pads, strict=True)
    return [*befores, *afters]


def _compute_interleaved(
    result: te.Tensor, axes: Sequence[_Axis], groups: int, outputs: int
) -> te.Tensor:
    """Interleave the results in one kernel: a reshape of dynamic shape is a slow copy."""
    phases = math.prod(axis.stride for axis in axes)

    def at(image: tvm.ir.Expr, channel: tvm.ir.Expr, *place: tvm.ir.Expr) -> tvm.ir.Expr:
        phase: tvm.ir.Expr | int = 0
        for axis, index in zip(axes, place, strict=True):
            phase = phase * axis.stride + (index + axis.crop) % axis.stride
        group, output = channel // outputs, channel % outputs
        row = (group * phases + phase) * outputs + output
        positions = [
            (one + axis.crop) // axis.stride for axis, one in zip(axes, place, strict=True)
        ]
        return result[image, row, *positions]

    shape = [result.shape[0], groups * outputs, *(axis.size for axis in axes)]
    return te.compute(shape, at, name="side_by_side")


def _analyze_axes(call: relax.Call) -> list[_Axis] | None:
    """Compute the parameters of each spatial axis, or None for a form that is not rewritten."""
    attrs = call.attrs
    image, weight = _list_extents(call.args[0]), read_static_shape(call.args[1])
    plain = read_layouts(call) == ONE_LAYOUT[call.op.name]
    if not (plain and image and weight) or any(int(step) != 1 for step in attrs.dilation):
        return None
    data, kernel = image[2:], weight[2:]
    space = len(data)
    pads = [int(n) for n in attrs.padding]
    extra = [int(n) for n in attrs.output_padding]
    strides = [  # for one element each result has its own tap, for any stride
        kernel[i] + extra[i] if isinstance(data[i], int) and data[i] == 1 else int(stride)
        for i, stride in enumerate(attrs.strides)
    ]
    axes = [
        _Axis.of(data[i], kernel[i], strides[i], (pads[i], pads[i + space]), extra[i])
        for i in range(space)
    ]
    rewritten_axes = [axis for axis in axes if axis is not None]
    return rewritten_axes if len(rewritten_axes) == space else None


def _list_extents(expr: relax.Expr) -> list[Extent]:
    """Return the extents of a tensor, dynamic ones as expressions, or [] if it has no shape."""
    shape = expr.ty.shape
    if not isinstance(shape, relax.ShapeExpr):
        return []
    return [int(n) if isinstance(n, tvm.tirx.IntImm) else n for n in shape.values]
