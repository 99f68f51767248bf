"""Random operators, which are rejected: a build could not be verified."""

from typing import Final

from autopipe.compiler.frontends.onnx.operator import Operator

RANDOM: Final = "whose results are drawn at random"


OPERATORS: Final = (
    Operator(name="Bernoulli", refusal=RANDOM),
    Operator(name="Multinomial", refusal=RANDOM),
    Operator(name="RandomNormal", refusal=RANDOM),
    Operator(name="RandomNormalLike", refusal=RANDOM),
    Operator(name="RandomUniform", refusal=RANDOM),
    Operator(name="RandomUniformLike", refusal=RANDOM),
)
