"""Section `verify`: the check of the build against a reference."""

from typing import Annotated, Literal

from pydantic import Field

from autopipe.config.frozen import Distinct, Frozen
from autopipe.config.names import Samples


class Verify(Frozen, frozen=True):
    """Comparison with a reference runtime; `verify: null` publishes unchecked builds."""

    reference: Literal["auto", "onnxruntime", "onnx", "plain"] = "auto"
    """The runtime of the expected outputs: `onnxruntime`, `onnx` (its reference evaluator), `plain`
    (the imported model, compiled by TVM without schedules), or `auto` for the first of the former
    two that is installed and can run the model, with the others as cross-checks where a build
    differs, and `plain` for a model that is not ONNX."""
    cases: Annotated[int, Field(ge=1, le=1000)] = 3
    """Number of seeded random inputs, besides edge inputs (zeros, ones, large, small)."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of the random inputs."""
    # The contents of the files enter keys and locks as a source; their paths do not.
    inputs: Annotated[Distinct[Samples], Field(exclude=True)] = ()
    """Real inputs in addition to the generated ones, each a `.npz` file of `numpy.savez`, relative
    to this YAML file, with an array for each input of the model by name."""
    rtol: Annotated[float, Field(ge=0, le=1)] | None = None
    """Relative tolerance of floating outputs; null takes the default of the output's dtype."""
    atol: Annotated[float, Field(ge=0)] | None = None
    """Absolute tolerance of floating outputs; null takes the default of the output's dtype."""
    accuracy: Annotated[float, Field(gt=0, le=1)] = 0.02
    """Largest change of an output by `numerics` in bfloat16 on random and real inputs: the norm of
    the difference from the unrounded model, relative to the norm of its output."""
