"""Model formats that *import* reads. Each is a class in its own file."""

from collections.abc import Mapping
from typing import Final

from autopipe.formats.model_format import ModelFormat
from autopipe.formats.onnx import ONNX
from autopipe.formats.tvmscript import TVMSCRIPT

_ALL: Final = (
    ONNX,
    TVMSCRIPT,
)

FORMATS: Final[Mapping[str, ModelFormat]] = {one.name: one for one in _ALL}
"""All formats by name; the first is the default."""
