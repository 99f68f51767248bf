"""Weights of a kernel: which parameters they are, and the names of what is done to them."""

from typing import Final

import tvm

MARK: Final = "meta_schedule.layout_rewrite_preproc"
"""TVM's annotation of a block of a PrimFunc that works on a weight; the build takes it out."""

TRANSFORM = "main_transform_params"
"""Name of the lifted function, which takes a tuple of weights and returns a tuple."""


def list_weights(function: tvm.tirx.PrimFunc) -> list[tvm.ir.Var]:
    """Return the parameters of a PrimFunc that are weights, so that their layout may change."""
    positions = (function.attrs or {}).get("layout_free_buffers", [])
    return [function.params[int(position)] for position in positions]
