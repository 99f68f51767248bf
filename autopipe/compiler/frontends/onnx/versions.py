"""The definition of each operator that its converter follows, by the opset that brought it.

ONNX defines an operator anew where its attributes, inputs or types change. A definition that is
not in this table is refused, by name, until somebody has read what changed and said so here.
"""

from collections.abc import Mapping
from typing import Final

_NEWEST: Final = {
    28: """
        Cast Compress DepthToSpace DequantizeLinear Einsum Mod OneHot Optional
        OptionalGetElement OptionalHasElement QuantizeLinear ReduceLogSum ReduceLogSumExp
        SpaceToDepth Unique
    """,
    27: """
        Range
    """,
    25: """
        CastLike Constant ConstantOfShape Flatten Identity If Pad Reshape Shape Size Squeeze
        Transpose Unsqueeze
    """,
    24: """
        SplitToSequence TopK
    """,
    23: """
        RMSNormalization
    """,
    22: """
        Acos Acosh Asin Asinh Atan Atanh AveragePool Conv ConvTranspose Cos Cosh Dropout Elu
        EyeLike GlobalAveragePool GlobalLpPool GlobalMaxPool GridSample HardSigmoid HardSwish
        InstanceNormalization LpPool MaxPool MaxRoiPool MaxUnpool Mish RoiAlign Round Selu Sin
        Sinh Softplus Softsign Tan ThresholdedRelu
    """,
    21: """
        GroupNormalization QLinearMatMul
    """,
    20: """
        AffineGrid Gelu IsInf IsNaN ReduceMax ReduceMin
    """,
    19: """
        Equal Resize
    """,
    18: """
        BitwiseAnd BitwiseNot BitwiseOr BitwiseXor ReduceL1 ReduceL2 ReduceMean ReduceProd
        ReduceSumSquare ScatterElements ScatterND Split
    """,
    17: """
        LayerNormalization
    """,
    16: """
        GreaterOrEqual LeakyRelu LessOrEqual PRelu Where
    """,
    15: """
        BatchNormalization Pow
    """,
    14: """
        Add CumSum Div Mul Relu Sub Trilu
    """,
    13: """
        Abs ArgMax ArgMin Ceil Clip Concat Erf Exp Expand Floor Gather GatherElements GatherND
        Gemm Greater Hardmax LRN Less Log LogSoftmax MatMul Max Mean MeanVarianceNormalization
        Min Neg NonZero Reciprocal ReduceSum Sigmoid Sign Slice Softmax Sqrt Sum Tanh Tile
    """,
    11: """
        BitShift ConcatFromSequence DynamicQuantizeLinear NonMaxSuppression Scatter SequenceAt
        SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength
    """,
    10: """
        ConvInteger MatMulInteger QLinearConv Upsample
    """,
    9: """
        Shrink
    """,
    7: """
        And Or Xor
    """,
    1: """
        Not
    """,
}

FOLLOWED: Final[Mapping[str, int]] = {
    name: version for version, names in _NEWEST.items() for name in names.split()
}
"""The newest definition that is followed, by operator; older ones are too, from opset 7 on."""
