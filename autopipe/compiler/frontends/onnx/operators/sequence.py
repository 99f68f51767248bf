"""Sequences of tensors."""

from typing import Final

from tvm import relax
from tvm.ir import Expr

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
)
