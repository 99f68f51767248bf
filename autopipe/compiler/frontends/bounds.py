"""Limits the memory that a model may ask for: a small file can name tensors that fill a machine.

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
    """Computed of constants alone: weights of half of the published networks, made of nothing."""
    folded_share: int = 8
    """A quantized weight becomes four times as large, and may be turned around as well."""
    alive: int = 2**31
    """Of tensors that are alive at once."""
    alive_share: int = 64
    """The first layers of a network widen its input by about ten."""
    weights: int = 2**32
    """Of weights that are drawn, since the file holds none."""
    imported: int = 2**32
    """That import may take beside the model, for graphs, shapes and constants."""
    imported_share: int = 16
    """Copies of the weights: as they are read, folded, and in the module, in float64 at times."""
    nodes: int = 2**17
    """Of a graph, once local functions are put in place; the largest that are published have a
    sixth of it."""
    bodies: int = 2**10
    """Branches and bodies, each of which becomes a function; published models have tens."""
    rounds: int = 2**20
    """Of a loop over constants alone, which the build runs; one takes some microseconds."""
    machine_share: int = 2
    """No more than one part in so many of the machine's memory: a stage holds a model twice."""


BOUNDS: Final = Bounds()


@dataclass(frozen=True, slots=True)
class Computation:
    """One computation of a model."""

    what: str
    """What it is called in messages."""
    inputs: tuple[str, ...]
    outputs: Mapping[str, int]
    """Bytes of each result whose size is known."""
    constant: bool = False
    """Whether it needs nothing of what the model is given."""


def check_memory(
    steps: Sequence[Computation],
    *,
    given: Mapping[str, int],
    stored: int,
    returned: Collection[str],
    bounds: Bounds = BOUNDS,
) -> None:
    """Raise `ModelError` for a model whose tensors take absurdly much memory.

    `given` are the bytes of each input, `stored` those of all weights.
    """
    limit = bounds.folded + bounds.folded_share * stored
    folded = 0
    for step in steps:
        if step.constant:
            folded += sum(step.outputs.values())
            _check_limit(
                folded, limit, f"{step.what}: what is computed of constants alone comes to"
            )
    limit = bounds.alive + bounds.alive_share * (stored + sum(given.values()))
    machine = available() // bounds.machine_share
    for step, alive in _count_live_bytes(steps, given, returned):
        told = f"{step.what}: the tensors that are alive with its results take"
        _check_limit(alive, limit, told)
        _check_limit(alive, machine, told, "half of this machine, ")


def check_rounds(what: str, count: int, bounds: Bounds = BOUNDS) -> None:
    """Raise `ModelError` for a loop over constants alone that takes absurdly many rounds."""
    if count > bounds.rounds:
        raise ModelError(f"{what} takes {count} rounds over constants, more than {bounds.rounds}")


def check_nodes(count: int, bounds: Bounds = BOUNDS) -> None:
    """Raise `ModelError` for a graph of absurdly many nodes."""
    if count > bounds.nodes:
        raise ModelError(f"the model has {count} nodes, more than {bounds.nodes}")


def check_bodies(count: int, bounds: Bounds = BOUNDS) -> None:
    """Raise `ModelError` for a graph with absurdly many graphs inside its nodes."""
    if count > bounds.bodies:
        raise ModelError(f"the model has {count} branches and bodies, more than {bounds.bodies}")


def compute_import_limit(stored: int, bounds: Bounds = BOUNDS) -> int:
    """Return how many bytes the import of a model may take whose weights take `stored`."""
    return min(
        bounds.imported + bounds.imported_share * stored, available() // bounds.machine_share
    )


def check_weights(sizes: Mapping[str, int], bounds: Bounds = BOUNDS) -> None:
    """Raise `ModelError` if weights that would be drawn take absurdly much memory."""
    total = 0
    limit = min(bounds.weights, available() // bounds.machine_share)
    for name, size in sizes.items():
        total += size
        _check_limit(total, limit, f"weight {name!r}: the weights up to it take")


def _count_live_bytes(
    steps: Sequence[Computation], given: Mapping[str, int], returned: Collection[str]
) -> Iterable[tuple[Computation, int]]:
    """Yield each step with the bytes of all tensors that it needs in memory, without weights."""
    last = {name: index for index, step in enumerate(steps) for name in step.inputs}
    held = dict(given)
    total = sum(held.values())
    for index, step in enumerate(steps):
        made = {} if step.constant else step.outputs
        total += sum(made.values())
        held.update(made)
        yield step, total
        for name in {*step.inputs, *made}:
            if name in held and last.get(name, -1) <= index and name not in returned:
                total -= held.pop(name)


def _check_limit(size: int, limit: int, what: str, whose: str = "") -> None:
    if size > limit:
        raise ModelError(f"{what} {size >> 20} MiB, more than {whose}{limit >> 20} MiB")
