"""Remove the transposes around padding by padding the permuted axes.

TVM's layout conversion does not permute the axes of padding. The input of an int8 convolution with
a zero point other than 0 is padded by a separate op, so two transposes of the whole image are left
around it.

Example: x is [1, 112, 112, 16], channels last.

    permute(pad(permute(x, [0, 3, 1, 2]), [0, 0, 0, 0, 1, 1, 1, 1]), [0, 2, 3, 1])
    pad(x, [0, 0, 1, 1, 1, 1, 0, 0])
"""

from typing import Final

import tvm
from tvm import relax

from autopipe.compiler.graph.literals import read_permutation
from autopipe.compiler.graph.rewrite import CallSite, rewrite_calls

_TRANSPOSE: Final = "relax.permute_dims"
PAD: Final = "relax.nn.pad"


def pad_in_place(module: tvm.IRModule) -> tvm.IRModule:
    """Replace transpose, padding and inverse transpose by padding of permuted axes."""
    return rewrite_calls(_pad_permuted, module)


def _pad_permuted(site: CallSite) -> relax.Expr:
    call = site.call
    pad = site.find_producer(call.args[0], PAD) if site.op == _TRANSPOSE else None
    transpose = None if pad is None else site.find_producer(pad.args[0], _TRANSPOSE)
    if pad is None or transpose is None:
        return call
    after, before = read_permutation(call), read_permutation(transpose)
    if [before[axis] for axis in after] != list(range(len(after))):
        return call
    widths = list(map(int, pad.attrs.pad_width))
    permuted_widths = [width for axis in after for width in widths[2 * axis : 2 * axis + 2]]
    mode, value = str(pad.attrs.pad_mode), float(pad.attrs.pad_value)
    return relax.op.nn.pad(transpose.args[0], permuted_widths, pad_mode=mode, pad_value=value)
