"""Bound the memory of a model: a small file can declare tensors that exceed a machine's memory.

Two sums have a limit. The first is the size of all values that are computed from constants alone,
since import and clean-up fold them into the model. The second is the size of all values that are
needed at the same time while the model runs.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from autopipe.errors import ModelError
from autopipe.host.memory import available


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits in bytes. A multiple of the size of the weights is added to each."""

    folded: int = 2**30
    """Values folded from constants: generated weights of half of the published networks."""
    folded_share: int = 8
    """A dequantized weight is four times as large, and may also be transposed."""
    alive: int = 2**31
    """Tensors that are live at the same time."""
    alive_share: int = 64
    """The first layers of a network enlarge its input about tenfold."""
    weights: int = 2**32
    """Synthesized weights."""
    imported: int = 2**32
    """Memory of the import beside the model, for graphs, shapes and constants."""
    imported_share: int = 16
    """Copies of the weights: read, folded, and in the module, partly in float64."""
    nodes: int = 2**17
    """Nodes of a graph after inlining of local functions; the largest published ones have a sixth
    of it."""
    bodies: int = 2**10
    """Branches and bodies, each of which becomes a function; published models have tens."""
    rounds: int = 2**20
    """Rounds of a loop over constants, which the build runs; one takes some microseconds."""
    machine_share: int = 2
    """Divisor of the machine's memory: a stage holds a model twice."""


BOUNDS: Final = Bounds()


@dataclass(frozen=True, slots=True)
class Computation:
    """One computation of a model."""

    what: str
    """Its label in messages."""
    inputs: tuple[str, ...]
    outputs: Mapping[str, int]
    """Bytes of each result of known size."""
    constant: bool = False
    """Whether it depends on no input of the model."""


def check_memory(
    steps: Sequence[Computation],
    *,
    input_bytes: Mapping[str, int],
    weight_bytes: int,
    output_names: Collection[str],
    bounds: Bounds = BOUNDS,
) -> None:
    """Raise `ModelError` if the tensors of a model exceed the memory bounds.

    `input_bytes` are the bytes of each input, `weight_bytes` those of all weights.
    """
    limit = bounds.folded + bounds.folded_share * weight_bytes
    folded_bytes = 0
    for step in steps:
        if step.constant:
            folded_bytes += sum(step.outputs.values())
            _check_limit(
                folded_bytes, limit, f"{step.what}: what is computed of constants alone comes to"
            )
    limit = bounds.alive + bounds.alive_share * (weight_bytes + sum(input_bytes.values()))
    machine = available() // bounds.machine_share
    for step, alive in _count_live_bytes(steps, input_bytes, output_names):
        message = f"{step.what}: the tensors that are alive with its results take"
        _check_limit(alive, limit, message)
        _check_limit(alive, machine, message, "half of this machine, ")


def check_rounds(label: str, count: int, bounds: Bounds = BOUNDS) -> None:
    """Raise `ModelError` for a loop over constants that exceeds the bound of rounds."""
    if count > bounds.rounds:
        raise ModelError(f"{label} takes {count} rounds over constants, more than {bounds.rounds}")


def check_count(count: int, limit: int, label: str) -> None:
    """Raise `ModelError` for a graph with too many nodes or inner graphs."""
    if count > limit:
        raise ModelError(f"the model has {count} {label}, more than {limit}")


def compute_import_limit(weight_bytes: int, bounds: Bounds = BOUNDS) -> int:
    """Return the memory limit in bytes of the import of a model with `weight_bytes` of weights."""
    return min(
        bounds.imported + bounds.imported_share * weight_bytes, available() // bounds.machine_share
    )


def check_weights(sizes: Mapping[str, int], bounds: Bounds = BOUNDS) -> None:
    """Raise `ModelError` if synthesized weights would exceed the memory bound."""
    total = 0
    limit = min(bounds.weights, available() // bounds.machine_share)
    for name, size in sizes.items():
        total += size
        _check_limit(total, limit, f"weight {name!r}: the weights up to it take")


def _count_live_bytes(
    steps: Sequence[Computation], input_bytes: Mapping[str, int], output_names: Collection[str]
) -> Iterable[tuple[Computation, int]]:
    """Yield each step with the bytes of all tensors that are live during it, without weights."""
    last = {name: index for index, step in enumerate(steps) for name in step.inputs}
    live_tensors = dict(input_bytes)
    total = sum(live_tensors.values())
    for index, step in enumerate(steps):
        new_tensors = {} if step.constant else step.outputs
        total += sum(new_tensors.values())
        live_tensors.update(new_tensors)
        yield step, total
        for name in {*step.inputs, *new_tensors}:
            if name in live_tensors and last.get(name, -1) <= index and name not in output_names:
                total -= live_tensors.pop(name)


def _check_limit(size: int, limit: int, label: str, owner: str = "") -> None:
    if size > limit:
        raise ModelError(f"{label} {size >> 20} MiB, more than {owner}{limit >> 20} MiB")
