"""The TVMScript frontend. It imports little, since `plan` uses it; the work is in `load`."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from autopipe.compiler.frontends.imported import Imported
from autopipe.config.dimension import Dimension
from autopipe.config.model import Input, Weights


class TvmscriptFrontend:
    """Reads `.py` files of TVMScript. They are parsed and never run."""

    def files(self, path: Path) -> Mapping[str, Path]:
        """Return the one file that the model consists of."""
        return {"model": path}

    def load(
        self,
        path: Path,
        *,
        inputs: Mapping[str, Input],
        weights: Weights | None,
        sha256: str | None,
        dimensions: Mapping[str, Dimension] = MappingProxyType({}),  # noqa: ARG002 - ONNX only
    ) -> Imported:
        """Read, check and parse a model; raises `ModelError` or `ConfigError`."""
        from autopipe.compiler.frontends.tvmscript.load import load

        return load(path, inputs, weights, sha256)
