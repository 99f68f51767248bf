"""Load an ONNX file as a Relax module: gate, weights, clean-up, conversion."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType

import numpy as np
from onnx import ModelProto

from autopipe.compiler.frontends import bounds
from autopipe.compiler.frontends.imported import Imported
from autopipe.compiler.frontends.onnx.conversion import relax
from autopipe.compiler.frontends.onnx.facts.index_limits import find_index_limits
from autopipe.compiler.frontends.onnx.facts.outputs import describe_outputs, list_misdeclared
from autopipe.compiler.frontends.onnx.facts.promises import derive_promises
from autopipe.compiler.frontends.onnx.facts.reference import write_reference
from autopipe.compiler.frontends.onnx.facts.shape_inputs import warn_of_deciding_inputs
from autopipe.compiler.frontends.onnx.facts.synthesize import (
    has_constant_kernels,
    synthesize_weights,
)
from autopipe.compiler.frontends.onnx.reading import gate, source, tensors
from autopipe.compiler.frontends.onnx.reading.tensors import Array
from autopipe.compiler.frontends.onnx.recurrent.notes import note_finite_weights
from autopipe.compiler.frontends.onnx.rewriting.cleanup import clean_model
from autopipe.compiler.frontends.onnx.rewriting.node_origins import number_nodes, read_origins
from autopipe.compiler.step_counter import count_bytes
from autopipe.config.dimension import Dimension
from autopipe.config.model import Input, Weights
from autopipe.errors import ModelError
from autopipe.host.refusal import explain_memory_error
from autopipe.processes.bounds import limit_data_within


def load_model(
    path: Path,
    inputs: Mapping[str, Input],
    weights: Weights | None,
    sha256: str | None,
    dimensions: Mapping[str, Dimension] = MappingProxyType({}),
) -> Imported:
    """Read a model; raises `ModelError` or `ConfigError` that begins with the file's path."""
    try:
        return _load_file(path, inputs, weights, sha256, dimensions)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error


def _load_file(
    path: Path,
    inputs: Mapping[str, Input],
    weights: Weights | None,
    sha256: str | None,
    dimensions: Mapping[str, Dimension],
) -> Imported:
    data = source.read_model_file(path)
    digest = source.hash_model(data)
    if sha256 not in {None, digest}:
        raise ModelError(f"the file's sha256 is {digest}, the pipeline asks for {sha256}")
    admission = gate.admit_model(data, path, inputs, dimensions)
    arrays, warnings = _read_weights(admission, path, weights)
    with _bound_memory(sum(values.nbytes for values in arrays.values())):
        source_copy = type(admission.model)()
        source_copy.CopyFrom(admission.model)
        nodes = number_nodes(source_copy)
        clean, parameters = clean_model(source_copy, arrays)
        note_finite_weights(clean, parameters)
        origins = read_origins(source_copy.graph, clean.graph, arrays)
        module = relax.to_relax(clean, admission.inputs, list(parameters), dimensions, origins)
    # synthetic weights may be in bodies and functions, where the original has stored ones
    original = _read_again(data, path, inputs, None if weights is not None else arrays)
    graph = admission.model.graph
    outputs = describe_outputs(module, graph, admission.inputs, dimensions)
    warnings += tuple(warn_of_deciding_inputs(graph, admission.inputs))
    warnings += tuple(list_misdeclared(outputs, graph))
    return Imported(
        name=graph.name or "model",
        module=module,
        inputs=admission.inputs,
        outputs=outputs,
        weights=parameters,
        source_sha256=digest,
        synthesized=weights is not None,
        opset=admission.opset,
        selects=find_index_limits(graph, [value.name for value in admission.inputs]),
        promises=derive_promises(graph, arrays, {value.name: value.dtype for value in outputs}),
        nodes=nodes,
        warnings=warnings,
        write_reference=partial(write_reference, admission.model, arrays, original),
    )


def _read_again(
    data: bytes, path: Path, inputs: Mapping[str, Input], weights: Mapping[str, Array] | None
) -> ModelProto | None:
    """Read the original form of a model, None without `weights`. Raises if its file has changed."""
    report = count_bytes("MiB of the model read again", len(data), passes=2)
    original = None if weights is None else gate.read_original(data, path, inputs, weights)
    report(len(data))
    if source.read_model_file(path) != data:
        raise ModelError("the file changed while it was read; run again")
    return original


@contextmanager
def _bound_memory(weight_bytes: int) -> Iterator[None]:
    """Limit the memory of an import: unrolling and folding may exceed it in an admitted model."""
    limit = bounds.compute_import_limit(weight_bytes)
    try:
        with limit_data_within(limit):
            yield
    except Exception as error:
        if explain_memory_error(error) is None:
            raise
        raise ModelError(f"the model needs more than {limit >> 20} MiB to be imported") from error


def _read_weights(
    admission: gate.Vetted, path: Path, weights: Weights | None
) -> tuple[dict[str, Array], tuple[str, ...]]:
    """Return (weights, read or synthesized; warnings about them)."""
    arrays = dict(tensors.read_arrays(admission.weights, path))
    graph = admission.model.graph
    if weights is not None:
        return synthesize_weights(graph, arrays, admission.shapes, weights.seed), ()
    warnings = [
        f"weight {name!r} holds numbers that are not finite"
        for name, values in arrays.items()
        if values.dtype.kind == "f" and not np.isfinite(values).all()
    ]
    if has_constant_kernels(graph, arrays, admission.shapes):
        warnings.append(
            "every kernel of the model holds one number only, so that comparing outputs proves "
            "nothing; set model.weights: {synthesize: he_normal}"
        )
    return arrays, tuple(warnings)
