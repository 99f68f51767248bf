"""Open models with onnxruntime, which prints nothing and refuses in one line."""

from os import PathLike
from typing import TYPE_CHECKING

from autopipe.errors import StageError, find_first_line

if TYPE_CHECKING:
    from onnxruntime import InferenceSession, SessionOptions


def open_session(
    model: "str | bytes | PathLike[str]", options: "SessionOptions | None" = None
) -> "InferenceSession":
    """Open a model on the processor. Raises StageError with the first line of any error."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors have no public base
        raise StageError(find_first_line(error)) from error
