"""Weights of a kernel: their parameters, and the names of their transforms."""

from typing import Final

import tvm

MARK: Final = "meta_schedule.layout_rewrite_preproc"
"""TVM's annotation of a block of a PrimFunc that transforms a weight; the build removes it."""

TRANSFORM = "main_transform_params"
"""Name of the lifted function, which takes a tuple of weights and returns a tuple."""


def list_weights(function: tvm.tirx.PrimFunc) -> list[tvm.ir.Var]:
    """List the parameters of a PrimFunc that are weights with a free layout."""
    positions = (function.attrs or {}).get("layout_free_buffers", [])
    return [function.params[int(position)] for position in positions]
