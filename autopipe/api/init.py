"""A first pipeline file for a model."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from autopipe.errors import ConfigError

_LAYOUTS = {
    3: "conv1d: [NWC, WIO]",
    4: "conv2d: [NHWC, HWIO]",
    5: "conv3d: [NDHWC, DHWIO]",
}

Shape = tuple[int | str | None, ...]


def init(model: Path, output: Path) -> None:
    """Write a pipeline file that runs for a model. Raises ConfigError if the file is there."""
    if output.exists():
        raise ConfigError(f"{output}: is there already; choose another --output")
    text = starter(model, output)
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(f"{output}: {error.strerror}") from error


def starter(model: Path, output: Path) -> str:
    """Return the text of a pipeline file that runs for a model, to be written to `output`.

    Dimensions that the model leaves open are guessed as 1, and a comment says so. Raises
    ModelError for a file that can not be used.
    """
    from autopipe.compiler.frontends.onnx.outline import outline

    described = outline(model)
    lines = [
        "version: 1",
        f"name: {_name(model)}",
        "model:",
        f"  path: {_quoted(os.path.relpath(model, output.parent))}",
        "  inputs:",
        *_inputs(described.declared, {value.name: value.dtype for value in described.inputs}),
    ]
    if described.constant_weights:
        lines.append("  weights: {synthesize: he_normal, seed: 0}  # the file has none of its own")
    layouts = [_LAYOUTS[rank] for rank in sorted(described.convolutions & _LAYOUTS.keys())]
    if layouts:
        lines += ["layout:", *(f"  {layout}" for layout in layouts)]
    lines += ["tasks: {allow_empty: true}  # a small model may have nothing worth tuning"]
    lines += ["tuning:", "  budget: {trials: 1000, time: 30m}"]
    return "\n".join(lines) + "\n"


def _inputs(declared: Mapping[str, Shape], dtypes: Mapping[str, str]) -> Iterator[str]:
    for name, shape in declared.items():
        sizes = [size if isinstance(size, int) else 1 for size in shape]
        field = f"    {_quoted(name)}: "
        guesses = [
            f"dimension {axis}" + (f" ({size})" if size else "")
            for axis, size in enumerate(shape)
            if not isinstance(size, int)
        ]
        if guesses:
            yield f"    # a guess: the model leaves {_plain(', '.join(guesses))} open"
        yield f"{field}{{shape: {sizes}, dtype: {dtypes[name]}}}"


def _name(model: Path) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", model.stem).lstrip("._-")[:100]
    return name or "model"


def _quoted(text: str) -> str:
    """Return text as a YAML string, which JSON's is, less what YAML may not hold."""
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _plain(text: str) -> str:
    """Return text that can not end the comment it stands in."""
    return "".join(char if char.isprintable() else "?" for char in text)
