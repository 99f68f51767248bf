"""Layouts and copies of convolutions, shared by passes over them."""

from typing import Final, NamedTuple

import tvm
from tvm import relax

from autopipe.compiler.graph.calls import address_call, graph_functions, list_bindings
from autopipe.compiler.graph.literals import read_static_shape

LAYOUTS: Final = {
    "relax.nn.conv1d": ("NCW", "OIW"),
    "relax.nn.conv2d": ("NCHW", "OIHW"),
    "relax.nn.conv3d": ("NCDHW", "OIDHW"),
}
"""Layouts of data and kernel in imported models, by op."""

TRANSPOSED_LAYOUTS: Final = {f"{op}_transpose": layouts for op, layouts in LAYOUTS.items()}
"""The same for the convolution that replaces a transposed one."""


def read_layouts(call: relax.Call) -> tuple[str, str]:
    """Return the layouts of data and kernel of a convolution."""
    return str(call.attrs.data_layout), str(call.attrs.kernel_layout)


def list_distinct_convolutions(module: tvm.IRModule) -> list[relax.Call]:
    """List a convolution of each combination of op, attributes and operand types.

    Thousands of layers are a few calls, as equal calls share these objects.
    """
    distinct_calls: dict[tuple[int, ...], relax.Call] = {}
    for _, function in graph_functions(module):
        for binding in list_bindings(function):
            call = binding.value
            if not isinstance(call, relax.Call) or getattr(call.op, "name", "") not in LAYOUTS:
                continue
            distinct_calls.setdefault(address_call(call, call.args), call)
    return list(distinct_calls.values())


class ConvolutionAxis(NamedTuple):
    """The parameters of a convolution along a spatial axis."""

    size: int
    taps: int
    stride: int
    dilation: int
    pad: tuple[int, int]
    """Before and after."""


def list_axes(call: relax.Call) -> list[ConvolutionAxis]:
    """List the spatial axes of a convolution in imported layout and of static shape, else []."""
    name, attrs = getattr(call.op, "name", ""), call.attrs
    if name not in LAYOUTS or read_layouts(call) != LAYOUTS[name]:
        return []
    data, weight = (read_static_shape(operand) for operand in call.args[:2])
    if data is None or weight is None:
        return []
    pads = [int(width) for width in attrs.padding]
    pairs = zip(pads[: len(pads) // 2], pads[len(pads) // 2 :], strict=True)
    steps = map(int, attrs.strides), map(int, attrs.dilation)
    return list(map(ConvolutionAxis, data[2:], weight[2:], *steps, pairs))


def rebuild_convolution(
    call: relax.Call,
    data: relax.Expr,
    weight: relax.Expr,
    **changes: object,
) -> relax.Call:
    """Copy a convolution with other operands and some attributes changed."""
    attrs = call.attrs
    attributes = {
        "strides": attrs.strides, "padding": attrs.padding, "dilation": attrs.dilation,
        "groups": attrs.groups, "data_layout": attrs.data_layout,
        "kernel_layout": attrs.kernel_layout, "out_layout": attrs.out_layout,
        "out_dtype": attrs.out_dtype,
    }  # fmt: skip
    new_call: relax.Call = getattr(relax.op.nn, call.op.name.rpartition(".")[2])(
        data, weight, **(attributes | changes)
    )
    return new_call
