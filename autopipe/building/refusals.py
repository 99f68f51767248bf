"""Errors that no kernel causes, as answers of the children that compile a model."""

from collections.abc import Callable, Mapping
from typing import Any

from autopipe.compiler.library.kernel_compiler import NotCompiled
from autopipe.compiler.walls.foreign_code import ForeignCode
from autopipe.errors import AutopipeError
from autopipe.processes.contained import Failed, Handler
from autopipe.processes.failure import describe_own_error, split_answer


def wrap_refusals(work: Callable[[Any], Any]) -> Handler:
    """Convert an error that no kernel causes to an answer."""

    def answer(request: Any) -> Mapping[str, Any]:  # noqa: ANN401 - JSON
        try:
            return {"ok": work(request)}
        except (Failed, ForeignCode, NotCompiled):  # some task's kernel is to blame
            raise
        except AutopipeError as error:
            return {"failed": describe_own_error(error)._asdict()}

    return answer


def unwrap_answer(answer: object) -> Any:  # noqa: ANN401 - JSON
    """Unwrap the result of a child, or raise the error that it reports."""
    result, error = split_answer(answer)
    if error is not None:
        raise error.error()
    return result
