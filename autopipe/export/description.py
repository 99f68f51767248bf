"""`model.txt`: what the C library has to know of a model, in a form that takes no parser of JSON.

`native/description.h` defines the lines.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import quote

from autopipe.artifacts.signature import LIBRARY, Port, Signature
from autopipe.compiler.target.cpu import linux_flag
from autopipe.config.dimension import terms
from autopipe.export.weights import PlacedWeight
from autopipe.packaging.manifest import Processor

DESCRIPTION: Final = "model.txt"

_INDICES: Final = 512
"""Weights that one line names."""


def encode_name(name: str) -> str:
    """Return a name as one word of a line."""
    return quote(name, safe="")


def describe(signature: Signature, processor: Processor, placed: Mapping[str, PlacedWeight]) -> str:
    """Return the lines of a model; `placed` are its weights, by name."""
    return "\n".join([*_lines(signature, processor, placed), "end", ""])


def _lines(
    signature: Signature, processor: Processor, placed: Mapping[str, PlacedWeight]
) -> Iterator[str]:
    yield "autopipe 1"
    yield f"threads {signature.threads}"
    yield f"processor {processor.machine} {processor.mcpu}"
    for feature in processor.features:
        yield f"feature {feature} {linux_flag(feature)}"
    for name in sorted(signature.dimensions):  # the order in which a library takes them
        one = signature.dimensions[name]
        yield f"dimension {name} {one.min} {one.max} {one.multiple}"
    for port in signature.inputs:
        yield " ".join(["input", encode_name(port.name), port.dtype, *_extents(port)])
    for port in signature.outputs:
        shape = map(str, port.shape)
        yield " ".join(["output", encode_name(port.name), port.dtype, *shape])
    yield f"library {LIBRARY}"
    for entry in signature.entries:
        sizes = (f"{name}={entry.sizes[name]}" for name in sorted(entry.sizes))
        yield " ".join(["library", entry.library, *sizes])
    indices = {name: index for index, name in enumerate(placed)}
    for weight in placed.values():
        yield " ".join(["weight", weight.dtype, str(weight.offset), *map(str, weight.shape)])
    taken = {LIBRARY: signature.weights}
    taken |= {entry.library: entry.weights for entry in signature.entries}
    for library, names in taken.items():
        for at in range(0, len(names), _INDICES):
            numbers = (str(indices[name]) for name in names[at : at + _INDICES])
            yield " ".join(["takes", library, *numbers])


def _extents(port: Port) -> Sequence[str]:
    """Return the sizes of an input: numbers, dimensions and sums such as `past+1`."""
    names = port.dimensions or ("",) * len(port.shape)
    return [
        "+".join(map(str, terms(name))) if name else str(size)
        for name, size in zip(names, port.shape, strict=True)
    ]
