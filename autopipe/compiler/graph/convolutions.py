"""What passes over convolutions have in common."""

from typing import Final

from tvm import relax

LAYOUTS: Final = {
    "relax.nn.conv1d": ("NCW", "OIW"),
    "relax.nn.conv2d": ("NCHW", "OIHW"),
    "relax.nn.conv3d": ("NCDHW", "OIDHW"),
}
"""Layouts of data and kernel, as models come with them, by op."""

TRANSPOSED_LAYOUTS: Final = {f"{op}_transpose": layouts for op, layouts in LAYOUTS.items()}
"""The same of the convolution that takes the place of a transposed one."""


def read_layouts(call: relax.Call) -> tuple[str, str]:
    """Return the layouts of data and kernel of a convolution."""
    return str(call.attrs.data_layout), str(call.attrs.kernel_layout)


def rebuild_convolution(
    call: relax.Call,
    data: relax.Expr,
    weight: relax.Expr,
    **changes: object,
) -> relax.Call:
    """Return a convolution like another one, of other operands, with some attributes changed."""
    attrs = call.attrs
    same = {
        "strides": attrs.strides, "padding": attrs.padding, "dilation": attrs.dilation,
        "groups": attrs.groups, "data_layout": attrs.data_layout,
        "kernel_layout": attrs.kernel_layout, "out_layout": attrs.out_layout,
        "out_dtype": attrs.out_dtype,
    }  # fmt: skip
    made: relax.Call = getattr(relax.op.nn, call.op.name.rpartition(".")[2])(
        data, weight, **(same | changes)
    )
    return made
