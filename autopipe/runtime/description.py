"""`model.txt`: the description of a model for the C library, in a format without JSON.

`export/native/description.h` defines the lines. A variant has `model.1.txt`, and so on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote

from .features import LINUX_FLAGS
from .weights import PlacedWeight

DESCRIPTION: Final = "model.txt"
LIBRARY: Final = "lib.so"

_INDICES: Final = 512
"""Maximum number of weights in a line."""
_WORD: Final = re.compile(r"[!-~]+")


def encode_name(name: str) -> str:
    """Escape a name to one word of a line."""
    return quote(name, safe="")


def list_builds(needs: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the builds of a package with the prefix of their files, the most basic first."""
    yield "", needs
    for place, variant in enumerate(needs.get("variants") or (), 1):
        yield f"v{place}.", variant["needs"]


def list_halves(needs: Mapping[str, Any]) -> set[str]:
    """Return the names of all weights that are stored as float16 and read as float32.

    Raises ValueError for an invalid manifest.
    """
    with _convert_misfits():
        return {
            name
            for _, build in list_builds(needs)
            for name in build["signature"].get("halves") or ()
        }


def describe_builds(
    needs: Mapping[str, Any], placed: Mapping[str, PlacedWeight], start: int = 0
) -> Iterator[tuple[str, str]]:
    """Yield a file name and lines for each build of a package.

    Args:
        needs: The `internalParameters` of the manifest.
        placed: The weights, by name.
        start: Offset of the safetensors file in the mapped file, in bytes.

    Raises ValueError for an invalid manifest.
    """
    with _convert_misfits():
        for place, (prefix, build) in enumerate(list_builds(needs)):
            lines = [_join_words(words) for words in _list_lines(build, prefix, placed, start)]
            name = f"model.{place}.txt" if place else DESCRIPTION
            yield name, "\n".join(["autopipe 1", *lines, "end", ""])


@contextmanager
def _convert_misfits() -> Iterator[None]:
    """Raise ValueError for what a manifest with values of other types raises."""
    try:
        yield
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"the manifest does not fit: {error!r}") from None


def _join_words(words: Sequence[object]) -> str:
    texts = list(map(str, words))
    for text in texts:
        if not _WORD.fullmatch(text):
            raise ValueError(f"the manifest does not fit: {text!r}")
    return " ".join(texts)


def _list_lines(
    needs: Mapping[str, Any], prefix: str, weights: Mapping[str, PlacedWeight], start: int
) -> Iterator[Sequence[object]]:
    signature, processor = needs["signature"], needs["processor"]
    yield "threads", signature["threads"]
    yield "processor", processor["machine"], processor["mcpu"]
    for feature in processor["features"]:
        yield "feature", feature, LINUX_FLAGS[feature]
    dimensions = signature.get("dimensions", {})
    for name in sorted(dimensions):  # the order in which a library takes them
        dimension = dimensions[name]
        yield "dimension", name, dimension["min"], dimension["max"], dimension["multiple"]
    for port in signature["inputs"]:
        yield "input", encode_name(port["name"]), port["dtype"], *_format_extents(port)
    for port in signature["outputs"]:
        yield "output", encode_name(port["name"]), port["dtype"], *_format_extents(port)
    entries = signature.get("entries", ())
    yield "library", prefix + LIBRARY
    for entry in entries:
        sizes = (f"{name}={entry['sizes'][name]}" for name in sorted(entry["sizes"]))
        yield "library", prefix + entry["library"], *sizes
    for weight in weights.values():
        yield "weight", weight.dtype, start + weight.offset, *weight.shape
    indices = {name: index for index, name in enumerate(weights)}
    weights_by_library = {LIBRARY: signature["weights"]}
    weights_by_library.update((entry["library"], entry["weights"]) for entry in entries)
    for library, names in weights_by_library.items():
        for at in range(0, len(names), _INDICES):
            yield "takes", prefix + library, *(indices[name] for name in names[at : at + _INDICES])


def _format_extents(port: Mapping[str, Any]) -> Sequence[str]:
    """Return the sizes of a port: numbers, dimensions, sums such as `past+1`, ranges as `1..64`."""
    shape = port["shape"]
    names = port.get("dimensions") or [""] * len(shape)
    ranges = port.get("ranges") or [None] * len(shape)
    return [
        name.replace(" ", "") or (f"{ends[0]}..{ends[1]}" if ends else str(size))
        for size, name, ends in zip(shape, names, ranges)  # noqa: B905 - Python 3.9 has no `strict`
    ]
