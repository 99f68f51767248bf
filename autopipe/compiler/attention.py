"""What attention computes: sums of values, weighed by how queries and keys fit each other.

    scores[..., s, t] = scale * sum over d of q[..., s, d] * k[..., t, d] + mask[..., s, t]
    y[..., s, e] = sum over t of softmax(scores)[..., s, t] * v[..., t, e]

(Vaswani et al., arXiv:1706.03762). Each tensor may have its axes in an order of its own: a model
makes `q` by a product whose result holds the heads beside each other, [batch, s, heads, d], and
reads `y` so. The heads and batches, whatever their number, are the outer axes here.
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
"""TVM's kind of a function that fuses with nothing."""

Order = Annotated[tuple[Annotated[int, Field(ge=0, le=15)], ...], Field(min_length=2)]


class AttentionForm(Frozen, frozen=True):
    """The orders of axes, and what becomes of a product before the softmax.

    An order says which axis of the usual order each axis of a tensor is. Usual are the outer axes,
    then the position (of a query or a key), then the depth. Example: (0, 2, 1, 3) is the order of a
    tensor [batch, position, head, depth], as head is axis 1 of [batch, head, position, depth].
    """

    query: Order
    key: Order
    value: Order
    result: Order
    scale: float
    masked: bool
    """Whether there is a mask [..., s, t], whose axes are as long as those or 1."""

    @property
    def attributes(self) -> dict[str, object]:
        """Attributes of a PrimFunc that computes it."""
        return {ATTRIBUTE: self.model_dump_json(), "op_pattern": _OPAQUE}


def parse_form(text: str) -> AttentionForm | None:
    """Return the form that a text says, or None if it says none."""
    try:
        return AttentionForm.model_validate_json(text)
    except ValidationError:
        return None


def to_usual_order(order: Sequence[int], values: Sequence[_Value]) -> list[_Value]:
    """Return what a tensor's axes have in an order, such as extents, in the usual order."""
    return [values[order.index(axis)] for axis in range(len(order))]


def to_stored_order(order: Sequence[int], values: Sequence[_Value]) -> list[_Value]:
    """Return what axes have in the usual order, such as indices, in the order of a tensor."""
    return [values[axis] for axis in order]


def find_mask_index(mask: te.Tensor | Var, place: Sequence[Expr]) -> list[Expr | int]:
    """Return the index of the element of a mask for a score."""
    return [0 if _is_one(n) else at for n, at in zip(mask.shape, place, strict=True)]


def build_attention(
    form: AttentionForm, query: te.Tensor, key: te.Tensor, value: te.Tensor, *mask: te.Tensor
) -> te.Tensor:
    """Return attention as TVM's tensor, scores and softmax written out."""
    *outer, queries, depth = to_usual_order(form.query, query.shape)
    keys = to_usual_order(form.key, key.shape)[-2]
    breadth = to_usual_order(form.value, value.shape)[-1]
    step, term = te.reduce_axis((0, depth), "d"), te.reduce_axis((0, keys), "t")

    def score(*at: Expr) -> Expr:
        *heads, s, t = at
        product = query(*to_stored_order(form.query, [*heads, s, step]))
        return te.sum(product * key(*to_stored_order(form.key, [*heads, t, step])), axis=step)

    def moved(*at: Expr) -> Expr:
        scaled = scores(*at) * te.const(form.scale, query.dtype)
        return scaled + mask[0](*find_mask_index(mask[0], at)) if mask else scaled

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
