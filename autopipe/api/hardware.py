"""The hardware parameters that functions are scheduled for without measuring."""

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
    """Build section `target` of a pipeline file; fields that are not stated are this machine's.

    `stated` are fields of that section, such as `num_cores`, `mcpu` or `kind`, and those of its
    part `hardware`: `vector_bits` and `registers`; `l1`, `l2` and `l3` in bytes.

    Raises ConfigError for an unknown field, and TargetError for an impossible target.
    """
    sizes = {name: stated.pop(name) for name in Hardware.model_fields if name in stated}
    return fill_target(validate_section(Target, {**stated, "hardware": sizes}, target="target"))


def fill_target(target: Target) -> Target:
    """Fill in all fields of a target that default to the machine. Raises TargetError."""
    facts = resolve_target(target, describe_machine())
    fields = BACKENDS[target.kind].fields
    if "hardware" not in fields:
        stated_fields = {name: facts[name] for name in fields}
        return Target.model_validate({"kind": target.kind, **stated_fields})
    params = asdict(Conditions.of(facts, fast_algorithms=True).hardware)
    sizes = {name: params[name] for name in Hardware.model_fields}
    return Target.model_validate({**facts, "hardware": sizes})


def build_conditions(target: Target, *, fast_algorithms: bool) -> Conditions:
    """Build the conditions of a standalone function, which any build of TVM must compile.

    Raises TargetError.
    """
    conditions = Conditions.of(
        resolve_target(target, describe_machine()), fast_algorithms=fast_algorithms
    )
    features = conditions.hardware.features - {PRODUCTS, TILES}
    return replace(conditions, hardware=replace(conditions.hardware.alone(), features=features))


def validate_section(kind: type[_Section], value: object, **options: str) -> _Section:
    """Validate a section of a pipeline file; `options` rename its fields in error messages.

    Raises ConfigError.
    """
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        ours = {field: name for name, field in options.items()}
        messages = []
        for problem in error.errors():
            field = ".".join(map(str, problem["loc"])) or next(iter(options), "")
            messages.append(f"{ours.get(field, field)}: {problem['msg']}")
        raise ConfigError("; ".join(messages)) from None


def to_target(target: Target | Mapping[str, Any] | None) -> Target:
    """Convert a target argument to a `Target`; None is this machine. Raises ConfigError."""
    return (
        target
        if isinstance(target, Target)
        else validate_section(Target, target or {}, target="target")
    )
