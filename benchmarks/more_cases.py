"""More functions of Relax operators: adjoints, detection, and why some operators have none."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

# ruff: noqa: ANN401  TVM has no types

WITHOUT: Final[Mapping[str, str]] = {
    "arange": "a constant",
    "ccl.*, dist.*": "speak to other processes",
    "dynamic_strided_slice": "sizes are known at run time",
    "grad.no_grad, grad.start_checkpoint, grad.end_checkpoint": "are no function of loops",
    "inspect.*, shape_to_tensor, size": "read the header of a tensor",
    "nn.attention_var_len": "is lowered to a call of a library",
    "nn.pixel_shuffle": "TVM 0.27 lacks the compute that it is lowered to",
    "vision.roi_align, vision.roi_pool": "as TVM writes them, loops read outside of the image for "
    "random regions; a test compares our RoiAlign with onnxruntime",
    "vision.all_class_non_max_suppression": "sizes are known at run time",
}
"""Operators with a legalization that are not in the table, and why."""


def more(f: Any, i: Any, op: Any, each: Any, operator: Any) -> Iterator[Any]:
    """Yield operators with their operands; the arguments are those of `compute_cases`."""
    shapes = ((128, 513), (64, 12, 128), (1000, 37))
    yield each("eye_like", *((f(*shape),) for shape in ((512, 512), (100, 37), (64, 1000))))
    for name, call in (
        ("full_like", lambda x: op("full_like")(x, _two())),
        ("nn.dropout", lambda x: op("nn.dropout")(x, 0.5)),
    ):
        yield operator(name, tuple((f(*shape),) for shape in shapes), call)
    yield each(
        "nn.attention_bias",
        *(
            (*[f(b, n, h, d)] * 3, f(b, h, n, n))
            for b, n, h, d in ((1, 128, 8, 64), (2, 64, 4, 32), (1, 37, 2, 16))
        ),
    )
    for name, made in _detection(f, i, op):
        yield operator(name, *made)


def _detection(f: Any, i: Any, op: Any) -> Iterator[tuple[str, Any]]:
    boxes = ((1, 100), (4, 1000), (2, 37))
    yield (
        "vision.get_valid_counts",
        (tuple((f(n, m, 6),) for n, m in boxes), lambda x: op("vision.get_valid_counts")(x, 0.5)),
    )
    yield (
        "vision.multibox_transform_loc",
        (
            tuple((f(n, 3, m), f(n, 4 * m), f(1, m, 4)) for n, m in boxes),
            op("vision.multibox_transform_loc"),
        ),
    )
    yield (
        "vision.non_max_suppression",
        (
            tuple((f(n, m, 6), i(n), i(n, m)) for n, m in boxes),
            op("vision.non_max_suppression"),
        ),
    )


def _two() -> Any:
    from tvm import relax

    return relax.const(2.0, "float32")


def adjoint(operator: Any, operands: Sequence[tuple[tuple[int, ...], str]]) -> list[Any]:
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
