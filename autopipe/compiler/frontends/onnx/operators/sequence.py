"""Sequences of tensors, and optional values."""

from typing import Final

import numpy as np
from tvm import relax
from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion import operand_facts
from autopipe.compiler.frontends.onnx.conversion.site import NodeSite
from autopipe.compiler.frontends.onnx.operator import Operator


def convert_split_to_sequence(site: NodeSite) -> Expr:
    """Convert SplitToSequence as a tuple of its parts, the form of all sequences."""
    bb = site.bb
    split = bb.normalize(site.convert_by_tvm())
    if isinstance(split, relax.Tuple):
        return split
    parts = bb.emit(split)
    return relax.Tuple(
        [bb.emit(relax.TupleGetItem(parts, at)) for at in range(len(split.ty.fields))]
    )


def convert_optional_has_element(site: NodeSite) -> Expr:
    """Convert OptionalHasElement, also of an absent input."""
    if not any(value is not None for value in site.inputs):
        return operand_facts.make_constant(np.zeros((), "bool"))
    return site.convert_by_tvm()


OPERATORS: Final = (
    Operator(name="ConcatFromSequence", since=11),
    Operator(name="SequenceAt", since=11),
    Operator(name="SequenceConstruct", since=11),
    Operator(name="SequenceEmpty", since=11),
    Operator(name="SequenceErase", since=11),
    Operator(name="SequenceInsert", since=11),
    Operator(name="SequenceLength", since=11),
    Operator(name="SequenceMap", refusal="of sequences whose lengths are not known"),
    Operator(name="SplitToSequence", since=24, converter=convert_split_to_sequence),
    Operator(name="Optional", since=28, converter=onnx_frontend.Optional_),
    Operator(name="OptionalGetElement", since=28),
    Operator(name="OptionalHasElement", since=28, converter=convert_optional_has_element),
)
