"""What functions are scheduled for: the few numbers that schedules without measuring go by."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, TypeVar

from pydantic import JsonValue, ValidationError

from autopipe.backends import BACKENDS
from autopipe.compiler.codegen.type_bfloat16_operands import PRODUCTS
from autopipe.compiler.target.cpu import TILES
from autopipe.compiler.tvm_probe import describe_machine
from autopipe.config.frozen import Frozen
from autopipe.config.target import Hardware, Target
from autopipe.environment.environment import resolve_target
from autopipe.errors import ConfigError
from autopipe.schedules.conditions import Conditions

_Section = TypeVar("_Section", bound=Frozen)


def hardware(**stated: JsonValue) -> Target:
    """Return section `target` of a pipeline file, filled in: what is not stated is this machine's.

    `stated` are fields of that section, such as `num_cores`, `mcpu` or `kind`, and those of its
    part `hardware`: `vector_bits` and `registers`; `l1`, `l2` and `l3` in bytes.

    Raises ConfigError for what is no such field, and TargetError for what can not be.
    """
    sizes = {name: stated.pop(name) for name in Hardware.model_fields if name in stated}
    return fill_target(validate_section(Target, {**stated, "hardware": sizes}, target="target"))


def fill_target(target: Target) -> Target:
    """Return a target that leaves nothing to the machine. Raises TargetError."""
    facts = resolve_target(target, describe_machine())
    fields = BACKENDS[target.kind].fields
    if "hardware" not in fields:
        given = {name: facts[name] for name in fields}
        return Target.model_validate({"kind": target.kind, **given})
    params = asdict(Conditions.of(facts, fast_algorithms=True).hardware)
    sizes = {name: params[name] for name in Hardware.model_fields}
    return Target.model_validate({**facts, "hardware": sizes})


def build_conditions(target: Target, *, fast_algorithms: bool) -> Conditions:
    """Return what schedules are made for that stand in no model: what any build of TVM compiles.

    Raises TargetError.
    """
    found = Conditions.of(
        resolve_target(target, describe_machine()), fast_algorithms=fast_algorithms
    )
    features = found.hardware.features - {PRODUCTS, TILES}
    return replace(found, hardware=replace(found.hardware.alone(), features=features))


def validate_section(kind: type[_Section], value: object, **options: str) -> _Section:
    """Return the section of a pipeline file; `options` are our names of what is wrong in it.

    Raises ConfigError.
    """
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        ours = {field: name for name, field in options.items()}
        told = []
        for problem in error.errors():
            field = ".".join(map(str, problem["loc"])) or next(iter(options), "")
            told.append(f"{ours.get(field, field)}: {problem['msg']}")
        raise ConfigError("; ".join(told)) from None


def to_target(given: Target | Mapping[str, Any] | None) -> Target:
    """Return what a caller means by a target; nothing is this machine. Raises ConfigError."""
    return (
        given
        if isinstance(given, Target)
        else validate_section(Target, given or {}, target="target")
    )
