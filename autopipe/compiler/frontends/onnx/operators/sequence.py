"""Sequences of tensors."""

from typing import Final

from tvm import relax
from tvm.ir import Expr
from tvm.relax.frontend.onnx import onnx_frontend

from autopipe.compiler.frontends.onnx.conversion.converter_types import (
    Attributes,
    BlockBuilder,
    Inputs,
    Parameters,
)
from autopipe.compiler.frontends.onnx.operator import Operator


class SplitToSequence(onnx_frontend.SplitToSequence):
    """SplitToSequence as a tuple of its parts, the form of all sequences."""

    @classmethod
    def _impl_v11(
        cls, bb: BlockBuilder, inputs: Inputs, attr: Attributes, params: Parameters
    ) -> Expr:
        split = bb.normalize(super()._impl_v11(bb, inputs, attr, params))
        if isinstance(split, relax.Tuple):
            return split
        parts = bb.emit(split)
        return relax.Tuple(
            [bb.emit(relax.TupleGetItem(parts, at)) for at in range(len(split.ty.fields))]
        )


OPERATORS: Final = (
    Operator(name="ConcatFromSequence", since=11, converter=onnx_frontend.ConcatFromSequence),
    Operator(name="SequenceAt", since=11, converter=onnx_frontend.SequenceAt),
    Operator(name="SequenceConstruct", since=11, converter=onnx_frontend.SequenceConstruct),
    Operator(name="SequenceEmpty", since=11, converter=onnx_frontend.SequenceEmpty),
    Operator(name="SequenceErase", since=11, converter=onnx_frontend.SequenceErase),
    Operator(name="SequenceInsert", since=11, converter=onnx_frontend.SequenceInsert),
    Operator(name="SequenceLength", since=11, converter=onnx_frontend.SequenceLength),
    Operator(name="SequenceMap", refusal="of sequences whose lengths are not known"),
    Operator(name="SplitToSequence", since=24, converter=SplitToSequence),
)
