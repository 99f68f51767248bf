"""The definition of each operator that its converter follows, by the opset that brought it.

ONNX defines an operator anew where its attributes, inputs or types change. A definition that is
not in this table is refused, by name, until somebody has read what changed and said so here.
"""

from collections.abc import Mapping
from typing import Final

_NEWEST: Final = {
    28: """
        BitShift Cast Celu Compress DepthToSpace DequantizeLinear Einsum Mod OneHot Optional
        OptionalGetElement OptionalHasElement QuantizeLinear ReduceLogSum ReduceLogSumExp
        ReverseSequence SpaceToDepth SwiGLU Unique
    """,
    27: """
        CausalConvWithState LinearAttention Range
    """,
    26: """
        BitCast CumProd
    """,
    25: """
        Attention CastLike Constant ConstantOfShape Flatten Identity If Loop Pad Reshape Scan
        Shape Size Squeeze Transpose Unsqueeze
    """,
    24: """
        SplitToSequence Swish TensorScatter TopK
    """,
    23: """
        RMSNormalization RotaryEmbedding
    """,
    22: """
        Acos Acosh Asin Asinh Atan Atanh AveragePool Conv ConvTranspose Cos Cosh DeformConv Det
        Dropout Elu EyeLike GRU GlobalAveragePool GlobalLpPool GlobalMaxPool GridSample
        HardSigmoid HardSwish InstanceNormalization LSTM LpNormalization LpPool MaxPool MaxRoiPool
        MaxUnpool Mish NegativeLogLikelihoodLoss RNN RoiAlign Round Selu Sin Sinh Softplus
        Softsign Tan ThresholdedRelu
    """,
    21: """
        GroupNormalization QLinearMatMul
    """,
    20: """
        AffineGrid DFT Gelu IsInf IsNaN ReduceMax ReduceMin
    """,
    19: """
        Equal Resize
    """,
    18: """
        BitwiseAnd BitwiseNot BitwiseOr BitwiseXor CenterCropPad Col2Im ReduceL1 ReduceL2
        ReduceMean ReduceProd ReduceSumSquare ScatterElements ScatterND Split
    """,
    17: """
        BlackmanWindow HammingWindow HannWindow LayerNormalization MelWeightMatrix STFT
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
        Gemm Greater Hardmax LRN Less Log LogSoftmax MatMul Max Mean MeanVarianceNormalization Min
        Neg NonZero Reciprocal ReduceSum Sigmoid Sign Slice Softmax SoftmaxCrossEntropyLoss Sqrt
        Sum Tanh Tile
    """,
    11: """
        ConcatFromSequence DynamicQuantizeLinear NonMaxSuppression Scatter SequenceAt
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
