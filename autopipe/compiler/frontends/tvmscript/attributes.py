"""Allowed attributes of the functions and blocks of a model, and their allowed values.

Some attributes name a function that TVM calls, others hold code that TVM compiles, and each release
adds more. So only the attributes of TVM's own operators are allowed.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

_RULE: Final = re.compile(
    r"None|meta_schedule\.(adaptive_)?pool_[a-z]{1,20}|conv2d_\w{1,40}", re.ASCII
)
_NAME: Final = re.compile(r"[A-Za-z]\w{0,63}", re.ASCII)
_LARGEST: Final = 2**31

Fits = Callable[[object], bool]


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST


def _is_truth_value(value: object) -> bool:
    return isinstance(value, bool) or value in (0, 1)


def _is_number_list(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_number, value))


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(_NAME.fullmatch(value))


def _is_rule(value: object) -> bool:
    return isinstance(value, str) and bool(_RULE.fullmatch(value))


FUNCTIONS: Final[Mapping[str, Fits]] = {
    "global_symbol": _is_name, "layout_free_buffers": _is_number_list, "num_input": _is_number,
    "op_pattern": _is_number, "s_tir": _is_truth_value, "tirx.noalias": _is_truth_value,
}  # fmt: skip
"""Attributes of PrimFuncs."""

MAINS: Final[Mapping[str, Fits]] = {
    "global_symbol": _is_name, "num_input": _is_number, "relax.force_pure": _is_truth_value,
}  # fmt: skip
"""Attributes of the Relax function."""

BLOCKS: Final[Mapping[str, Fits]] = {"axis": _is_number, "schedule_rule": _is_rule}
"""Annotations of blocks; a rule is the name of a function that TVM calls."""

OF: Final[Mapping[str, tuple[str, Mapping[str, Fits]]]] = {
    "T.func_attr": ("attribute", FUNCTIONS),
    "R.func_attr": ("attribute", MAINS),
    "T.sblock_attr": ("annotation", BLOCKS),
}
"""Functions that set attributes: the label of each, and its allowed attributes."""


def find_fault(kind: str, rules: Mapping[str, Fits], key: object, value: object) -> str | None:
    """Return the reason why an attribute is not allowed in a model, or None if it is."""
    if not isinstance(key, str) or key not in rules:
        return f"the {kind} {str(key)[:60]!r} is not allowed in a model"
    if not rules[key](value):
        return f"the {kind} {key!r} cannot be {str(value)[:60]!r} in a model"
    return None
