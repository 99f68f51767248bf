"""Attention as a tensor expression: sums of values, weighted by the scores of queries and keys.

    scores[..., s, t] = scale * sum over d of q[..., s, d] * k[..., t, d] + mask[..., s, t]
    y[..., s, e] = sum over t of softmax(scores)[..., s, t] * v[..., t, e]

(Vaswani et al., arXiv:1706.03762). Each tensor may have another order of axes: models compute `q`
by a matmul as [batch, s, heads, d], and read `y` so. Any number of batch and head axes are the
outer axes here.
"""

from collections.abc import Sequence
from typing import Annotated, Final, TypeVar

from pydantic import Field, ValidationError
from tvm import te, topi
from tvm.ir import Expr, Var

from autopipe.config.frozen import Frozen

_Value = TypeVar("_Value")

ATTRIBUTE: Final = "autopipe.attention"
"""Attribute of a PrimFunc that holds its form as JSON."""

_OPAQUE: Final = 8
"""TVM's pattern kind of a function that fuses with nothing."""

Order = Annotated[tuple[Annotated[int, Field(ge=0, le=15)], ...], Field(min_length=2)]


class AttentionForm(Frozen, frozen=True):
    """The orders of axes of attention, its scale and its mask.

    An order maps each axis of a tensor to an axis of the usual order: the outer axes, then the
    position (of a query or a key), then the depth. Example: (0, 2, 1, 3) is the order of a tensor
    [batch, position, head, depth], as head is axis 1 of [batch, head, position, depth].
    """

    query: Order
    key: Order
    value: Order
    result: Order
    scale: float
    masked: bool
    """Whether there is a mask [..., s, t]; its extents may be 1."""

    @property
    def attributes(self) -> dict[str, object]:
        """Attributes of a PrimFunc that computes it."""
        return {ATTRIBUTE: self.model_dump_json(), "op_pattern": _OPAQUE}


def parse_form(text: str) -> AttentionForm | None:
    """Parse a form from JSON; None for other text."""
    try:
        return AttentionForm.model_validate_json(text)
    except ValidationError:
        return None


def to_usual_order(order: Sequence[int], values: Sequence[_Value]) -> list[_Value]:
    """Permute values per stored axis, such as extents, to the usual order."""
    return [values[order.index(axis)] for axis in range(len(order))]


def to_stored_order(order: Sequence[int], values: Sequence[_Value]) -> list[_Value]:
    """Permute values per axis of the usual order, such as indices, to a tensor's order."""
    return [values[axis] for axis in order]


def find_mask_index(mask: te.Tensor | Var, place: Sequence[Expr]) -> list[Expr | int]:
    """Return the index of a score's mask element."""
    return [0 if _is_one(n) else at for n, at in zip(mask.shape, place, strict=True)]


def build_attention(
    form: AttentionForm, query: te.Tensor, key: te.Tensor, value: te.Tensor, *mask: te.Tensor
) -> te.Tensor:
    """Build attention as a tensor expression, with explicit scores and softmax."""
    *outer, queries, depth = to_usual_order(form.query, query.shape)
    keys = to_usual_order(form.key, key.shape)[-2]
    breadth = to_usual_order(form.value, value.shape)[-1]
    step, term = te.reduce_axis((0, depth), "d"), te.reduce_axis((0, keys), "t")

    def score(*at: Expr) -> Expr:
        *heads, s, t = at
        product = query(*to_stored_order(form.query, [*heads, s, step]))
        return te.sum(product * key(*to_stored_order(form.key, [*heads, t, step])), axis=step)

    def moved(*at: Expr) -> Expr:
        scaled_score = scores(*at) * te.const(form.scale, query.dtype)
        return scaled_score + mask[0](*find_mask_index(mask[0], at)) if mask else scaled_score

    def mean(*at: Expr) -> Expr:
        *heads, s, e = to_usual_order(form.result, at)
        part = value(*to_stored_order(form.value, [*heads, term, e]))
        return te.sum(shares(*heads, s, term) * part, axis=term)

    scores = te.compute([*outer, queries, keys], score, name="scores")
    shares = topi.nn.softmax(te.compute(scores.shape, moved, name="scaled"), axis=-1)
    return te.compute(
        to_stored_order(form.result, [*outer, queries, breadth]), mean, name="attention"
    )


def _is_one(extent: Expr) -> bool:
    return int(getattr(extent, "value", 0)) == 1
