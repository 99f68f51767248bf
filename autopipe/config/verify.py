"""Section `verify`: how the build is checked against a reference."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from autopipe.config.distinct import Distinct
from autopipe.config.frozen import Sparse
from autopipe.config.samples import Samples


class Verify(Sparse, frozen=True):
    """Comparison with a reference runtime; `verify: null` publishes unchecked builds."""

    ADDED: ClassVar[frozenset[str]] = frozenset({"accuracy"})

    reference: Literal["auto", "onnxruntime", "onnx", "plain"] = "auto"
    """Who computes the expected outputs: `onnxruntime`, `onnx` (its reference evaluator), `plain`
    (the model as imported, compiled by TVM as plain loops), or `auto` for the first of the former
    two that is installed and can run the model, with the others as a second opinion where a build
    differs, and `plain` for a model that is not ONNX."""
    cases: Annotated[int, Field(ge=1, le=1000)] = 3
    """Seeded random inputs; edge inputs (zeros, ones, large, small) come on top."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of the random inputs."""
    # What is in the files enters keys and locks as a source; where they lie decides nothing.
    inputs: Annotated[Distinct[Samples], Field(exclude=True)] = ()
    """Real inputs, each a `.npz` file relative to this YAML file, with an array for each input of
    the model by name, as `numpy.savez` writes it; they come beside the generated ones."""
    rtol: Annotated[float, Field(ge=0, le=1)] | None = None
    """Relative tolerance of floating outputs; null takes the default of the output's dtype."""
    atol: Annotated[float, Field(ge=0)] | None = None
    """Absolute tolerance of floating outputs; null takes the default of the output's dtype."""
    accuracy: Annotated[float, Field(gt=0, le=1)] = 0.02
    """How far `numerics` in bfloat16 may move an output on random and real inputs: the norm of the
    difference from the model as it is, by the norm of what that computes."""
