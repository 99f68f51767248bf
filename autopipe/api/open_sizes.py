"""Proposes open sizes for a first pipeline file: names, ranges, multiples and likely sizes."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from autopipe.api.sizes import InputSizes, is_made_up
from autopipe.config.dimension import Dimension

if TYPE_CHECKING:
    from autopipe.compiler.frontends.onnx.hints import SizeHints

_BATCHES: Final = 16
_PICTURES: Final = 4
"""Images in a batch: all are compared at their largest size."""
_LENGTHS: Final = 512
_LENGTH: Final = 128
_IMAGES: Final = 1280
_IMAGE: Final = 640
_LONGEST: Final = 50
"""Characters of a name."""
_SPATIAL: Final = 4
"""Dimensions from which the ones behind the second are those of an image."""


def named(inputs: Mapping[str, InputSizes]) -> dict[str, InputSizes]:
    """Return the inputs with a name for each size that nobody gave; that of a batch, too.

    A name of the model's own stays, as far as a pipeline file takes it.
    """
    names: dict[str, str] = {}
    found = {}
    for name, known in inputs.items():
        left = {**known.assumed, **known.open}
        called = {
            axis: _name(
                f"{name}_{axis}" if is_made_up(said) else said, said or f"{name} {axis}", names
            )
            for axis, said in sorted(left.items())
        }
        shape = tuple(None if axis in left else size for axis, size in enumerate(known.shape))
        found[name] = replace(known, shape=shape, open={}, assumed={}, names=called)
    return found


def proposed(
    inputs: Mapping[str, InputSizes], before: Mapping[str, InputSizes], hints: "SizeHints"
) -> Iterator[str]:
    """Yield the lines of `dimensions`; `before` is what was known before there were names."""
    seen = set[str]()
    images = any(len(one.shape) >= _SPATIAL and max(one.names, default=0) > 1
                 for one in inputs.values())  # fmt: skip
    for name, known in inputs.items():
        for axis, called in known.names.items():
            if called not in seen:
                seen.add(called)
                image = len(known.shape) >= _SPATIAL and axis > 1
                if axis in before[name].assumed:
                    last = _PICTURES if images else _BATCHES
                    one, why = Dimension(max=last, likely=(1,)), ""
                else:
                    one, why = _dimension(hints, image=image)
                yield f"    {called}: {_text(one)}{f'  # {why}' if why else ''}"


def _dimension(hints: "SizeHints", *, image: bool) -> tuple[Dimension, str]:
    """Return what is proposed of a dimension that is no batch, and where it comes from."""
    if image:
        step = hints.multiple
        why = f"strides in the model: {step}" if step > 1 else ""
        likely = max(_IMAGE // step, 1) * step
        last = max(_IMAGES // step * step, likely)
        return Dimension(min=step, max=last, multiple=step, likely=(likely,)), why
    why = "" if hints.bound is None else f"rows of a table in the model: {hints.bound}"
    last = hints.bound or _LENGTHS
    return Dimension(max=last, likely=(min(_LENGTH, last),)), why


def _text(one: Dimension) -> str:
    multiple = f", multiple: {one.multiple}" if one.multiple > 1 else ""
    return f"{{min: {one.min}, max: {one.max}{multiple}, likely: [{one.likely[0]}]}}"


def _name(text: str, key: str, names: dict[str, str]) -> str:
    """Return the name of a dimension in the file; `key` is the same for the same dimension."""
    if key not in names:
        plain = re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_")[:_LONGEST] or "size"
        plain = f"_{plain}" if plain[0].isdigit() else plain
        while plain in names.values():
            plain += "_"
        names[key] = plain
    return names[key]
