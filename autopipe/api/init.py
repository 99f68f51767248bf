"""A first pipeline file for a model."""

import json
import math
import os
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autopipe.api import open_sizes as open_forms
from autopipe.api import sizes
from autopipe.api.sizes import InputSizes
from autopipe.api.tried_sizes import Shapes, try_proposals
from autopipe.config.dimension import Sizes, evaluate_size
from autopipe.config.model import OPEN, Input
from autopipe.config.paths import PACKAGE, locate_model_file
from autopipe.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from autopipe.compiler.frontends.onnx.facts.outline import ModelOutline

_LAYOUTS = {
    3: "conv1d: [NWC, WIO]",
    4: "conv2d: [NHWC, HWIO]",
    5: "conv3d: [NDHWC, DHWIO]",
}

_LONGEST: Final = 60
"""Characters of a dimension's name."""
_PIPELINES: Final = (".yaml", ".yml")
_MISFIT: Final = ("(op_type:", "has a negative dimension")
"""What is said of nodes and values that do not fit each other."""
_TRIALS: Final = 32
"""Of each layer: as many as are proposed at a time."""
_RATE: Final = 2
"""Trials a second, first round and confirmation included, on two cores of a server."""


@dataclass(frozen=True, slots=True)
class Starter:
    """A pipeline file that was written, and what is left to do about it."""

    path: Path
    inputs: Mapping[str, InputSizes]
    """What is known of each input of the model."""
    closed: Mapping[str, str]
    """Dimensions that the model leaves open, and was found to take one size of: what to say."""

    @property
    def open(self) -> dict[str, InputSizes]:
        """Inputs with a size that nobody gave."""
        return {name: known for name, known in self.inputs.items() if known.open}


def write_pipeline_file(
    model: str,
    output: Path | None = None,
    *,
    shapes: Sequence[str] = (),
    open_sizes: bool = False,
    overwrite: bool = False,
) -> Starter:
    """Write a pipeline file for a model: the path of an ONNX file, or `pkg:package/path`.

    It is called after the model where there is no `output`. `shapes` are like `x=1,3,640,640`.
    With `open_sizes`, all others that the model leaves open stay so, within proposed ranges.
    Raises ConfigError if the file is there or a shape does not fit, ModelError for a model that can
    not be used.
    """
    path = locate_model_file(model, Path())
    if path.suffix in _PIPELINES:
        raise ConfigError(f"{model}: a pipeline file, and no model; next: autopipe run {model}")
    output = output or Path(f"{_to_pipeline_name(path)}.yaml")
    if output.exists() and not (overwrite and output.is_file()):  # a pipe has no end
        raise ConfigError(
            f"{output}: is there already; say --overwrite, or choose another --output"
        )
    written = model if model.startswith(PACKAGE) else os.path.relpath(path, output.parent)
    name = _to_pipeline_name(output)
    inputs, closed, text = draft_pipeline(path, written, shapes, name=name, open_sizes=open_sizes)
    try:
        with output.open("w" if overwrite else "x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(f"{output}: {error.strerror}") from error
    return Starter(output, inputs, closed)


def draft_pipeline(
    model: Path, written: str, shapes: Sequence[str], *, name: str, open_sizes: bool
) -> tuple[Mapping[str, InputSizes], Mapping[str, str], str]:
    """Draft the pipeline file of a model.

    Returns the sizes of its inputs, a note on each dimension that has one size only, and the text.
    `written` is the model's path in that file, `name` the pipeline's. Sizes that nobody gave are
    marked as open, but for the batch, assumed to be 1; with `open_sizes` both have a name. Raises
    ModelError for a file without use, ConfigError for a shape that is wrong.
    """
    from autopipe.compiler.frontends.onnx.facts import outline

    declared = outline.read_declared_shapes(model)
    settled = sizes.resolve_sizes(declared, sizes.parse_shapes(shapes, list(declared)))
    inputs = open_forms.name_open_sizes(settled) if open_sizes else settled
    try:
        described = _read_model_outline(model, inputs)
    except ModelError as error:
        misfit = any(words in str(error) for words in _MISFIT)
        raise ModelError(f"{error}{_suggest_shape(inputs, shapes) if misfit else ''}") from error
    found = _propose_sizes(model, inputs, settled, described)
    only = {name: one.dimension.first for name, one in found.items() if one.is_one_size}
    closed = {name: _explain_closed_size(model, inputs, found, name) for name in only}
    inputs = {name: known.at(only) for name, known in inputs.items()}
    lines = [
        *("version: 1", f"name: {name}"),
        *("model:", f"  path: {_to_yaml_string(written)}", "  inputs:"),
        *(f"    # {_replace_unprintable(told)}" for told in closed.values()),
        *(
            line
            for one in described.inputs
            for line in _list_input_lines(one.name, inputs[one.name], one.dtype)
        ),
        *_list_dimension_lines({name: one for name, one in found.items() if name not in only}),
    ]
    if described.constant_weights:
        lines.append("  weights: {synthesize: he_normal, seed: 0}  # the file has none of its own")
    layouts = [_LAYOUTS[rank] for rank in sorted(described.convolutions & _LAYOUTS.keys())]
    if layouts:
        lines += ["layout:", *(f"  {layout}" for layout in layouts)]
    lines += ["tasks: {allow_empty: true}  # a small model may have nothing worth tuning"]
    lines += _list_tuning_lines(described.layers)
    return inputs, closed, "\n".join(lines) + "\n"


def _propose_sizes(
    model: Path,
    inputs: Mapping[str, InputSizes],
    settled: Mapping[str, InputSizes],
    outline: "ModelOutline",
) -> Mapping[str, open_forms.SizeProposal]:
    """Return what is proposed of open sizes; `settled` is what was known before they had names."""
    if not any(known.names for known in inputs.values()):
        return {}
    found = open_forms.propose_dimensions(inputs, settled, outline)
    found = open_forms.fit_proposals(found, partial(_can_take_sizes, model, inputs))
    dtypes = {value.name: value.dtype for value in outline.inputs}
    return try_proposals(found, model, _list_shapes(inputs), dtypes)


def _explain_closed_size(
    model: Path,
    inputs: Mapping[str, InputSizes],
    found: Mapping[str, open_forms.SizeProposal],
    name: str,
) -> str:
    """Return what to say of a dimension that the model takes one size of."""
    only, step = found[name].dimension.first, found[name].dimension.multiple
    likely = {other: one.dimension.likely[0] for other, one in found.items()}
    why = (
        _find_size_refusal(model, inputs, {**likely, name: only + step})
        or "onnxruntime ends in an error"
    )
    return f"{name} is {only} here: at {only + step}, {' '.join(why.split())}"


def _list_dimension_lines(found: Mapping[str, open_forms.SizeProposal]) -> Iterator[str]:
    """Yield the lines about open sizes."""
    if found:
        yield "  # proposals: one package takes every size from min to max, and is fastest at"
        yield "  # the likely ones; a size may be a number in shape instead"
        yield "  dimensions:"
        yield from (f"    {name}: {one.text}" for name, one in found.items())


def _read_model_outline(model: Path, inputs: Mapping[str, InputSizes]) -> "ModelOutline":
    from autopipe.compiler.frontends.onnx.facts.outline import read_outline

    if any(None in known.shape for known in inputs.values()):
        return read_outline(model, None)
    shapes = {
        name: tuple(size for size in known.shape if size is not None)
        for name, known in inputs.items()
    }
    return read_outline(model, {name: Input(shape=shape) for name, shape in shapes.items()})


def _can_take_sizes(model: Path, inputs: Mapping[str, InputSizes], at: Sizes) -> bool:
    """Tell whether a model takes certain open sizes."""
    return _find_size_refusal(model, inputs, at) is None


def _find_size_refusal(model: Path, inputs: Mapping[str, InputSizes], at: Sizes) -> str | None:
    """Return why a model does not take certain open sizes, or None if it does."""
    from autopipe.compiler.frontends.onnx.facts.outline import find_refusal

    shapes = {
        name: tuple(
            evaluate_size(known.names[axis], at) if size is None else size
            for axis, size in enumerate(known.shape)
        )
        for name, known in inputs.items()
    }
    return find_refusal(model, {name: Input(shape=shape) for name, shape in shapes.items()})


def _list_shapes(inputs: Mapping[str, InputSizes]) -> Shapes:
    """Return the shapes of inputs with names for open sizes; all of them have one here."""
    return {
        name: tuple(known.names[axis] if size is None else size
                    for axis, size in enumerate(known.shape))
        for name, known in inputs.items()
    }  # fmt: skip


def _suggest_shape(inputs: Mapping[str, InputSizes], shapes: Sequence[str]) -> str:
    """Return what to try where the model is refused with sizes that it does not say itself."""
    if any(known.open for known in inputs.values()):
        return ""
    if any(known.assumed for known in inputs.values()):
        return "; a batch of 1 is assumed, --shape gives another size"
    return "; are these sizes that the model takes?" if shapes else ""


def _list_input_lines(name: str, known: InputSizes, dtype: str) -> Iterator[str]:
    if known.assumed:
        yield f"    # assumed: the batch, {format_dimensions(known.assumed)}, is 1"
    if known.open:
        yield f'    # write a size for each "{OPEN}": {format_dimensions(known.open)}'
    shape = ", ".join(
        known.names.get(axis, f'"{OPEN}"') if size is None else str(size)
        for axis, size in enumerate(known.shape)
    )
    yield f"    {_to_yaml_string(name)}: {{shape: [{shape}], dtype: {dtype}}}"


def format_dimensions(named: Mapping[int, str]) -> str:
    """Name dimensions, as comments and messages do: `dimension 2 (height), dimension 3 (width)`."""
    texts = (
        f"dimension {axis}" + (f" ({name[:_LONGEST]})" if name else "")
        for axis, name in named.items()
    )
    return _replace_unprintable(", ".join(texts))


def _list_tuning_lines(layers: int) -> list[str]:
    trials = _TRIALS * max(1, layers)
    minutes = math.ceil(trials / _RATE / 60)
    return [
        "tuning:",
        f"  # different layers: {layers}, with {_TRIALS} trials each, at {_RATE} a second; more",
        "  # trials find faster schedules, and `--set tuning=null` builds without any",
        f"  budget: {{trials: {trials}, time: {minutes}m}}",
    ]


def _to_pipeline_name(path: Path) -> str:
    """Return the name of a pipeline for the name of a file, letters without their accents."""
    letters = unicodedata.normalize("NFKD", path.stem)
    plain = "".join(c for c in letters if not unicodedata.combining(c))
    return re.sub(r"[^A-Za-z0-9._-]+", "-", plain).lstrip("._-")[:100] or "model"


def _to_yaml_string(text: str) -> str:
    """Return text as a YAML string, which JSON's is, less what YAML may not hold."""
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _replace_unprintable(text: str) -> str:
    """Return text that can not end the comment it stands in."""
    return "".join(char if char.isprintable() else "?" for char in text)
