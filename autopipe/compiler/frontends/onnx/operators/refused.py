"""Operators that are rejected: random ones could not be verified, strings are not computed."""

from typing import Final

from autopipe.compiler.frontends.onnx.operator import Operator

_RANDOM: Final = "whose results are drawn at random"
_STRINGS: Final = "of strings, which are not computed"


OPERATORS: Final = (
    Operator(name="Bernoulli", refusal=_RANDOM),
    Operator(name="Multinomial", refusal=_RANDOM),
    Operator(name="RandomNormal", refusal=_RANDOM),
    Operator(name="RandomNormalLike", refusal=_RANDOM),
    Operator(name="RandomUniform", refusal=_RANDOM),
    Operator(name="RandomUniformLike", refusal=_RANDOM),
    Operator(name="ImageDecoder", refusal="that read files"),
    Operator(name="RegexFullMatch", refusal=_STRINGS),
    Operator(name="StringConcat", refusal=_STRINGS),
    Operator(name="StringNormalizer", refusal=_STRINGS),
    Operator(name="StringSplit", refusal=_STRINGS),
    Operator(name="TfIdfVectorizer", refusal=_STRINGS),
)
