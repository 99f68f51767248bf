"""Operators on strings and files, which are not supported."""

from typing import Final

from autopipe.compiler.frontends.onnx.operator import Operator

STRINGS: Final = "of strings, which are not computed"


OPERATORS: Final = (
    Operator(name="ImageDecoder", refusal="that read files"),
    Operator(name="RegexFullMatch", refusal=STRINGS),
    Operator(name="StringConcat", refusal=STRINGS),
    Operator(name="StringNormalizer", refusal=STRINGS),
    Operator(name="StringSplit", refusal=STRINGS),
    Operator(name="TfIdfVectorizer", refusal=STRINGS),
)
