"""Load a TVMScript source as a Relax module: gate, parser, checks, weights."""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from autopipe import foreign
from autopipe.compiler.frontends.draw import Array, WeightPlan, draw_weights
from autopipe.compiler.frontends.imported import Imported
from autopipe.compiler.frontends.moments import NORMAL, Role
from autopipe.compiler.frontends.tvmscript import gate, memory
from autopipe.compiler.frontends.tvmscript.parse import parse_source
from autopipe.compiler.frontends.tvmscript.roles import find_roles
from autopipe.compiler.frontends.tvmscript.selects import find_index_limits
from autopipe.compiler.frontends.tvmscript.whole import Whole, normalize_model
from autopipe.config.dimension import Dimension
from autopipe.config.model import Input, Weights
from autopipe.errors import ModelError
from autopipe.processes.seccomp import works

_OPEN = "no seccomp here: nothing but the gate kept this source from what its parser can do"
_LINE = re.compile(r"\d+: ")


def load_tvmscript(
    path: Path,
    inputs: Mapping[str, Input],
    weights: Weights | None,
    sha256: str | None,
    dimensions: Mapping[str, Dimension] = MappingProxyType({}),  # noqa: ARG001 - it has none
) -> Imported:
    """Read a model; raises `ModelError` that begins with file and line, or `ConfigError`."""
    try:
        return _load_model(path, inputs, weights, sha256)
    except ModelError as error:
        between = ":" if _LINE.match(str(error)) else ": "
        raise ModelError(f"{path}{between}{error}") from error


def _load_model(
    path: Path, inputs: Mapping[str, Input], weights: Weights | None, sha256: str | None
) -> Imported:
    data = _read_source(path)
    digest = hashlib.sha256(data).hexdigest()
    if sha256 not in {None, digest}:
        raise ModelError(f"the file's sha256 is {digest}, the pipeline asks for {sha256}")
    model = normalize_model(parse_source(data), inputs)
    memory.check_model_memory(model.module, model.inputs, model.weights)
    if _read_source(path) != data:
        raise ModelError("the file changed while it was read; run again")
    return Imported(
        name=path.stem,
        module=model.module,
        inputs=model.inputs,
        outputs=model.outputs,
        weights=_draw_weights(model, weights),
        source_sha256=digest,
        synthesized=weights is not None,
        selects=find_index_limits(model.module),
        warnings=() if works() else (_OPEN,),
    )


def _read_source(path: Path) -> bytes:
    try:
        with foreign.open_regular_file(path) as file:
            data = file.read(gate.MAX_BYTES + 1)
    except OSError as error:
        raise ModelError(f"{error.strerror or error}") from error
    if len(data) > gate.MAX_BYTES:
        raise ModelError(f"more than {gate.MAX_BYTES} bytes, which no TVMScript needs")
    return data


def _draw_weights(model: Whole, weights: Weights | None) -> dict[str, Array]:
    """Draw random weights: a source has no values for its parameters."""
    names = [value.name for value in model.weights]
    if not names:
        return {}
    if weights is None:
        raise ModelError(
            f"parameters after the first {len(model.inputs)} are weights ({', '.join(names)}), and "
            "a source has no values for them; set model.weights: {synthesize: he_normal}"
        )
    for value in model.weights:
        if not value.dtype.startswith("float"):
            raise ModelError(
                f"weight {value.name!r} is {value.dtype}; only floats are drawn: write it as "
                "R.const, or make it an input"
            )
    roles = find_roles(model.module, names)
    default_role = Role("kernel", NORMAL)
    plans = {
        value.name: WeightPlan(roles.get(value.name, default_role), value.shape, value.dtype)
        for value in model.weights
    }
    return draw_weights(plans, weights.seed)
