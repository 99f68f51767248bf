"""Model formats: what is known of each without its library. `compiler.frontends` loads them."""

from collections.abc import Mapping
from typing import Final

from autopipe.formats.external_data import list_files
from autopipe.formats.model_format import ModelFormat

_ALL: Final = (
    ModelFormat(
        name="onnx",
        packages=("onnx",),
        runs_in_onnx_runtimes=True,
        supports_dynamic_shapes=True,
        list_files=list_files,
    ),
    ModelFormat(name="tvmscript"),
)

FORMATS: Final[Mapping[str, ModelFormat]] = {one.name: one for one in _ALL}
"""All formats by name; the first is the default."""
