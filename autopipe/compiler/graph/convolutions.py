"""Layouts and copies of convolutions, shared by passes over them."""

from typing import Final

from tvm import relax

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
