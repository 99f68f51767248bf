"""Runtime: run packages and exported folders with NumPy alone, without importing autopipe.

The wheel `autopipe-run` has these files as `autopipe_runtime`, with the libraries beside them.

>>> model = autopipe_runtime.open_package("dist/mlp.tar")
>>> outputs = model({"input": x})
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .folder import CallError, CallLimitError, ExportedModel
    from .package import open_package

__all__ = ["CallError", "CallLimitError", "ExportedModel", "open_package"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - what it is the type checker reads above
    """Import NumPy only with the first name that needs it."""
    if name not in __all__:
        raise AttributeError(name)
    from . import package

    return getattr(package, name)
