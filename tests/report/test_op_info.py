import pytest

from autopipe.report.op_info import list_op_lines
from autopipe.tasks.op_info import Fields, Literal, Op, OpInfo, Parameter, Result
from autopipe.tasks.tensor import Tensor
from tests.report.test_tasks_table import task

WIDE = Tensor(shape=(1, 8), dtype="float32")
FIRST = Parameter(parameter=0)


def op(name, *arguments, outputs=(WIDE,), **attributes):
    return Op(name=name, arguments=arguments, outputs=outputs, attributes=attributes)


def shown(*ops, results=(), width=200):
    info = OpInfo(kind="injective", ops=ops, results=results)
    return list_op_lines(task(info=info, inputs=(WIDE,)), width)


def test_ops_are_shown_with_what_they_read_and_what_they_compute():
    conv = op("nn.conv2d", FIRST, Parameter(parameter=1), strides=[2, 2], groups=1)
    half = Literal(value=0.5, dtype="float32")
    assert shown(conv, op("multiply", Result(op=0), half), results=(Result(op=1),)) == [
        "p0: 1x8 float32",
        "%0 = nn.conv2d(p0, p1; strides=[2, 2], groups=1) -> 1x8 float32",
        "%1 = multiply(%0, 0.5 float32) -> 1x8 float32",
        "return %1",
    ]


def test_attributes_that_say_nothing_are_left_out_and_zero_says_something():
    one = op("op", axis=0, out_dtype="void", layout="", axes=None, exclusive=False, keepdims=True)
    assert shown(one)[1] == "%0 = op(axis=0, keepdims=True) -> 1x8 float32"


def test_an_output_is_numbered_where_an_op_has_several():
    split = op("split", FIRST, outputs=(WIDE, WIDE))
    joined = op("concat", Fields(fields=(Result(op=0, output=1), FIRST, Literal(value=None))))
    assert shown(split, joined, results=(Result(op=1), Result(op=0)))[1:] == [
        "%0 = split(p0) -> 1x8 float32, 1x8 float32",
        "%1 = concat((%0.1, p0, ?)) -> 1x8 float32",
        "return %1, %0.0",
    ]


def test_part_of_an_op_and_a_symbolic_dimension_are_called_so():
    dynamic = Tensor(shape=(-1, 8), dtype="int8")
    part = op("sort", FIRST, outputs=(dynamic,)).model_copy(update={"whole": False})
    assert shown(part)[1] == "%0 = sort(p0) -> ?x8 int8 (a part of it)"


def test_a_function_that_no_op_was_lowered_to():
    assert shown()[1:] == ["no op was lowered to it"]


@pytest.mark.fault("E13")
def test_lines_are_folded_and_harmless():
    lines = shown(op("evil\x1b[2J\n", FIRST, **{f"attribute{i}": i for i in range(40)}), width=60)
    assert max(map(len, lines)) <= 60
    assert all(line.isprintable() for line in lines)
    assert lines[2].startswith("    ")
