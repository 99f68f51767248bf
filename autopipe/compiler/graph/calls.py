"""The calls of PrimFuncs in a Relax function."""

from collections.abc import Iterator

from tvm import relax


def callees(function: relax.Function) -> list[str]:
    """Return the PrimFunc of each `call_tir` of a function, in order."""
    called = (callee(binding.value) for binding in bindings(function))
    return [name for name in called if name is not None]


def bindings(function: relax.Function) -> list[relax.Binding]:
    """Return the bindings of a function, in order. Those of branches come before their `If`."""
    return list(_within(function.body))


def _within(body: relax.SeqExpr) -> Iterator[relax.Binding]:
    for block in body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, relax.If):
                yield from _within(binding.value.true_branch)
                yield from _within(binding.value.false_branch)
            yield binding


def callee(value: relax.Expr) -> str | None:
    """Return the name of the PrimFunc that a `call_tir` calls; None for any other value."""
    if isinstance(value, relax.Call) and getattr(value.op, "name", "") == "relax.call_tir":
        return str(value.args[0].name_hint)
    return None
