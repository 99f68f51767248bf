"""Check a model before any of it is compiled."""

import tvm

from autopipe.compiler.walls import module
from autopipe.compiler.walls.foreign_code import ForeignCode
from autopipe.errors import ModelError


def check_model(model: tvm.IRModule) -> None:
    """Raise ModelError for a model that carries code."""
    try:
        module.look_through(model)
    except ForeignCode as error:
        raise ModelError(f"the model brings code along: {error}") from None
