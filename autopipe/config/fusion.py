"""Section `fusion`: ops that are fused to one task, and ops that are kept apart."""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Final

from pydantic import AfterValidator, Field, StringConstraints

from autopipe.config.frozen import Consistent, Contradiction, Distinct

RENAMED: Final = {
    **dict.fromkeys(("dense", "nn.dense", "nn.linear", "linear", "gemm"), "matmul"),
    **dict.fromkeys(("nn.matmul", "batch_matmul", "nn.batch_matmul"), "matmul"),
    **dict.fromkeys(("nn.bias_add", "bias_add"), "add"),
    **dict.fromkeys(("transpose", "nn.transpose"), "permute_dims"),
}
"""Names of Relax ops in other tools, and in TVM before Relax."""


def _check_op_name(value: str) -> str:
    if value.startswith("relax."):
        raise ValueError(f"{value[:80]!r} names no op; leave out `relax.`")
    if value in RENAMED:
        raise ValueError(f"{value!r} names no op of Relax; write {RENAMED[value]}")
    return value


Op = Annotated[str, StringConstraints(min_length=1, max_length=100), AfterValidator(_check_op_name)]


def _check_op_count(ops: tuple[str, ...]) -> tuple[str, ...]:
    if not ops[1:]:
        raise ValueError("should be at least two ops, each the producer of the next")
    return ops


Ops = Annotated[
    tuple[Op, ...], AfterValidator(_check_op_count), Field(json_schema_extra={"minItems": 2})
]


class Fusion(Consistent, frozen=True):
    """Which ops are one task together, and which are kept apart; the rest is TVM's choice."""

    join: Distinct[Ops] = ()
    """Chains of ops that become one function, and so one task, such as `[matmul, nn.softmax,
    matmul]`: each op feeds the next, at once or by way of ops that sum nothing (scale, mask,
    transpose), which are taken along. An op is a glob; the first rule that takes one has it."""
    apart: Distinct[Ops] = ()
    """Chains of ops of which each goes into a function, and so a task, of its own."""

    def _contradictions(self) -> Iterator[Contradiction]:
        for position, ops in enumerate(self.apart):
            rule = next(
                (i for i, joined in enumerate(self.join) if _is_covered_by(ops, joined)), None
            )
            if rule is not None:
                why = f"is what `join` rule {rule} joins; leave out one of the two"
                yield ("apart", position), _format_ops(ops), why
        for position, ops in enumerate(self.join):
            earlier = self.join[:position]
            rule = next((i for i, other in enumerate(earlier) if _is_covered_by(other, ops)), None)
            if rule is not None:
                why = f"never applies: rule {rule} before it takes its ops; put it first"
                yield ("join", position), _format_ops(ops), why


def _is_covered_by(ops: Sequence[str], longer: Sequence[str]) -> bool:
    """Whether `ops` match a part of every match of the longer rule."""
    starts = range(len(longer) - len(ops) + 1)
    return any(all(map(fnmatchcase, longer[start:], ops)) for start in starts)


def _format_ops(ops: Sequence[str]) -> str:
    return f"[{', '.join(ops)}]"
