"""Functions to be scheduled: Relax operators, their adjoints, TOPI and custom computes."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from relax_cases import Operands, RelaxOperator, list_operators

# ruff: noqa: ANN401  TVM has no types


@dataclass(frozen=True, slots=True)
class Case:
    """An operator at one shape."""

    op: str
    label: str
    """What tells the three apart, such as the shape of the first operand."""
    function: Any
    """The PrimFunc, unscheduled; None if TVM makes none."""
    refused: str | None = None
    """Why it makes none."""

    @property
    def module(self) -> Any:
        """The function as `main`."""
        import tvm

        return tvm.IRModule({"main": self.function.with_attr("global_symbol", "main")})


def every_case(only: str = "") -> Iterator[Case]:
    """Yield the functions of all whose name contains `only`."""
    from own_computes import OWN
    from topi_cases import TOPI
    from tvm import te

    for operator in list_operators():
        if only in operator.name:
            try:
                yield from cases(operator)
            except Exception as error:  # noqa: BLE001 - TVM refuses, each time with another class
                yield Case(operator.name, "-", None, str(error).strip().splitlines()[-1])
    yield from _adjoints(only)
    for name, computes in TOPI.items():
        for label, make in computes.items() if only in name else ():
            yield Case(f"topi.{name}", label, te.create_prim_func(make()))
    for name, (make_own, sizes, small) in OWN.items():
        for given in (sizes, small) if only in name else ():
            label = "x".join(map(str, given))
            yield Case(name, label, te.create_prim_func(make_own(*given)))


def _adjoints(only: str) -> Iterator[Case]:
    """Yield each function of the adjoints that TVM has once, of the first shape of an operator."""
    import tvm_ffi

    seen: set[Any] = set()
    for operator in list_operators():
        name = f"adjoint of {operator.name}"
        if only not in name or not has_adjoint(operator.name) or not operator.operands[0]:
            continue
        try:
            functions = adjoint(operator, operator.operands[0])
        except Exception as error:  # noqa: BLE001 - as above
            yield Case(name, "-", None, str(error).strip().splitlines()[-1])
            continue
        label = " ".join("x".join(map(str, shape)) or "1" for shape, _ in operator.operands[0][:2])
        for number, function in enumerate(functions):
            if (digest := tvm_ffi.structural_hash(function)) not in seen:
                seen.add(digest)
                yield Case(name, f"{label} part {number}", function)


def cases(operator: RelaxOperator) -> Iterator[Case]:
    """Yield the functions of an operator: one or several of each shape. Raises what TVM raises."""
    for operands in operator.operands:
        label = " ".join("x".join(map(str, shape)) or "1" for shape, _ in operands[:2])
        functions = _lowered(operator, operands)
        for index, function in enumerate(functions):
            part = f" part {index}" if len(functions) > 1 else ""
            if not operands:
                label = "x".join(str(int(n)) for n in function.params[-1].shape)
            yield Case(operator.name, label + part, function)


def adjoint(operator: RelaxOperator, operands: Operands) -> list[Any]:
    """Return the PrimFuncs of the gradient of a call's sum by its inputs, but for the sum's own.

    Raises what TVM raises.
    """
    import tvm
    import tvm_ffi
    from tvm import relax, tirx

    given = [
        relax.Var(f"x{n}", relax.TensorType(shape, dtype))
        for n, (shape, dtype) in enumerate(operands)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", given):
        with builder.dataflow():
            value = builder.emit(operator.call(*given))
            if isinstance(value.ty, relax.TupleType):
                value = builder.emit(relax.TupleGetItem(value, 0))
            result = builder.emit_output(relax.op.sum(value))
        builder.emit_func_output(result)
    forward = builder.get()
    by = [var for var, (_, dtype) in zip(given, operands, strict=True) if dtype == "float32"]
    with tvm.target.Target("llvm"):
        learned = relax.transform.Gradient("main", require_grads=by)(forward)
        del learned["main"]
        lowered = relax.transform.LegalizeOps()(learned)
        known = relax.transform.LegalizeOps()(forward)
    before = {tvm_ffi.structural_hash(f) for f in _functions(known, tirx)}
    return [f for f in _functions(lowered, tirx) if tvm_ffi.structural_hash(f) not in before]


def has_adjoint(name: str) -> bool:
    """Tell whether TVM has the gradient of an operator."""
    import tvm

    if f"relax.{name}" not in tvm.ir.Op.list_op_names():
        return False
    return tvm.ir.Op.get(f"relax.{name}").get_attr("FPrimalGradient") is not None


def _functions(module: Any, tirx: Any) -> list[Any]:
    return [f.without_attr("global_symbol") if "global_symbol" in f.attrs else f
            for _, f in module.functions_items() if isinstance(f, tirx.PrimFunc)]  # fmt: skip


def _lowered(operator: RelaxOperator, operands: Operands) -> list[Any]:
    """Return the PrimFuncs that TVM's legalization makes of a call."""
    import tvm
    from tvm import relax, tirx

    given = [
        relax.Var(f"x{i}", relax.TensorType(shape, dtype))
        for i, (shape, dtype) in enumerate(operands)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", given):
        result = builder.emit(operator.call(*given))
        builder.emit_func_output(result)
    with tvm.target.Target("llvm"):
        module = relax.transform.LegalizeOps()(relax.backend.DispatchSortScan()(builder.get()))
    return [f for _, f in module.functions.items() if isinstance(f, tirx.PrimFunc)]
