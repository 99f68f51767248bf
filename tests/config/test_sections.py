"""The grammar of the sections: ranges, and fields that contradict each other."""

import pytest
from pydantic import TypeAdapter, ValidationError

from autopipe.config.benchmark import Benchmark
from autopipe.config.layout import Layout
from autopipe.config.quantity import Duration, format_duration
from autopipe.config.schedules import Schedules
from autopipe.config.verify import Verify
from autopipe.formats import FORMATS
from tests.config.conftest import GOOD
from tests.support.table import each_row

SECONDS = TypeAdapter(Duration)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("1 s", 1.0), ("1.5h", 5400.0), ("0.25m", 15.0), ("365m", 21900.0)],
)
def test_a_duration_has_a_unit(text, seconds):
    assert SECONDS.validate_python(text) == seconds


@pytest.mark.fault("A6")
@each_row(
    "wrong",
    ["5", "5 sec", "-5s", "s", "0s", "0.0ms", "1h30m", "1e3s", "010s", "٣s", "5s\n", "8761h", True],
)
def test_other_ways_to_write_a_duration_are_refused(wrong):
    with pytest.raises(ValidationError):
        SECONDS.validate_python(wrong, strict=True)


@pytest.mark.fault("A6")
@pytest.mark.parametrize("wrong", [0, -1.0, float("inf"), float("nan"), 1e12])
def test_a_number_of_seconds_is_in_range_too(wrong):
    with pytest.raises(ValidationError):
        SECONDS.validate_python(wrong)


@pytest.mark.parametrize("text", ["300ms", "20s", "5m", "2h", "90m", "1500ms", "10ms"])
def test_seconds_are_written_as_a_person_writes_them(text):
    assert format_duration(SECONDS.validate_python(text)) == text


@pytest.mark.fault("A6")
@pytest.mark.parametrize("number", [float("inf"), float("nan")])
def test_code_can_not_make_a_tolerance_that_everything_meets(number):
    with pytest.raises(ValidationError, match="finite"):
        Verify(atol=number)


def test_code_and_json_write_seconds():
    assert Benchmark(timeout=5).timeout == 5.0
    assert Benchmark.model_validate_json('{"timeout": 5}').timeout == 5.0


@each_row(
    "line, says",
    [
        ("conv2d: [NHWC, HWIO, NHWC]", "f:9:18: layout.conv2d: a list should be two layouts, d"),
        ("conv2d: [NHWC]", "[NHWC, HWIO]"),
        ("conv1d: [NHWC, WIO]", "f:9:19: layout.conv1d.0: 'NHWC' is not an order of N, W, C"),
        ("conv2d: [NHWC, NHWC]", "f:9:25: layout.conv2d.1: 'NHWC' is not an order of H, W, I, O"),
        ("conv3d: [NDHWC, HWIO]", "layout.conv3d.1: 'HWIO' is not an order of D, H, W, I, O"),
        ("conv2d: [NCHW16c, OIHW]", "'NCHW16c' is not an order of N, H, W, C"),
        ("conv2d: [nhwc, HWIO]", "'nhwc' is not an order of N, H, W, C, such as NHWC"),
        ("conv2d: [NHWC, WHIO]", "layout.conv2d.1: 'WHIO' should have HW in this order"),
        ("conv: [NHWC, HWIO]", "'conv' is not an op with a layout to choose; did you mean"),
        ("relu: [NHWC, HWIO]", "known: conv1d, conv2d, conv3d"),
        ("max_pool2d: [NHWC]", "'max_pool2d' follows the layout of the op before it; leave it"),
    ],
)
def test_a_layout_that_tvm_can_not_give_is_refused(refused, line, says):
    (said,) = refused(GOOD + f"layout: {{{line}}}\n")
    assert says in said


@pytest.mark.parametrize(
    ("op", "layouts"),
    [
        ("conv1d", ("NWC", "WIO")),
        ("conv2d", ("NHWC", "OHWI")),
        ("conv3d", ("NDHWC", "DHWIO")),
    ],
)
def test_every_order_of_axes_is_a_layout(op, layouts):
    assert TypeAdapter(Layout).validate_python({op: layouts}) == {op: layouts}


def test_a_gate_on_tuning_needs_tuning(refused):
    assert refused(GOOD, "tuning=null", "gates.searched_share=0.5") == [
        "--set gates.searched_share: 0.5 cannot be reached: `tuning` is null"
    ]


@pytest.mark.parametrize("benchmark", ["null", "{against: []}"])
def test_a_gate_on_a_competitor_needs_the_competitor(refused, benchmark):
    (said,) = refused(GOOD + f"benchmark: {benchmark}\n")
    assert said.startswith("f:8:37: gates.max_slowdown.onnxruntime: 1.5 cannot be checked: ")
    assert said.endswith("`benchmark.against` does not name onnxruntime")


def test_a_gate_on_the_best_competitor_needs_one(refused):
    (said,) = refused(GOOD, "benchmark.against=[]", "gates.max_slowdown={best: 1.1}")
    assert said.endswith(
        "gates.max_slowdown.best: 1.1 cannot be checked: "
        "`benchmark.against` does not name a reference runtime"
    )


def test_a_format_that_is_not_there_is_refused_with_those_that_are(refused):
    (said,) = refused(GOOD, "model.format=caffe")
    assert said.endswith(f"model.format: 'caffe' is not known; known: {', '.join(FORMATS)}")


@pytest.mark.parametrize("reference", ["onnxruntime", "onnx"])
def test_what_runs_onnx_is_no_reference_of_another_format(refused, reference):
    others = "model.format=tvmscript", "gates.max_slowdown={}"
    assert refused(GOOD, *others, f"verify.reference={reference}") == [
        f"--set verify.reference: {reference!r} runs ONNX models, and this is none; write 'plain'"
    ]


def test_a_gate_on_a_competitor_needs_a_model_that_it_runs(refused):
    (said,) = refused(GOOD, "model.format=tvmscript")
    assert said.endswith("cannot be checked: onnxruntime runs ONNX models, and this is none")


def test_all_contradictions_are_told_at_once(refused):
    off = GOOD + "benchmark: null\n"
    assert len(refused(off, "tuning=null", "gates.searched_share=1")) == 2


def test_a_rule_that_can_not_be_reached_is_refused(refused):
    rules = "schedules: {rules: [{}, {match: {op: conv2d}}, {}]}\n"
    assert refused(GOOD + rules) == [
        "f:9:25: schedules.rules.1: this section never applies: rule 0 before it matches every task"
    ]


def test_the_last_rule_may_match_everything(read):
    rules = "schedules: {rules: [{match: {op: conv2d}}, {match: {op: '*'}}]}\n"
    assert len(read(GOOD + rules).schedules.rules) == 2


@pytest.mark.parametrize(
    "line",
    [
        "benchmark: {against: [onnxruntime, onnxruntime]}",
        "schedules: {fallback: [default, default]}",
    ],
)
def test_nothing_is_listed_twice(refused, line):
    (said,) = refused(GOOD + line + "\n")
    assert said.endswith("is listed twice")


def test_there_is_always_a_fallback():
    with pytest.raises(ValidationError):
        Schedules(fallback=())


@pytest.mark.parametrize("feature", ["+avx512bf16", "-avx512f", "+sse4.2"])
def test_a_feature_is_added_or_taken_away(read, feature):
    assert read(GOOD + f"target: {{mattr: [{feature}]}}\n").target.mattr == (feature,)


@pytest.mark.fault("A12")
@pytest.mark.parametrize("feature", ["avx2", "+", "+avx2,+fma", "+a b"])
def test_a_feature_is_one_word_with_a_sign(refused, feature):
    (said,) = refused(GOOD + f'target: {{mattr: ["{feature}"]}}\n')
    assert "should match pattern" in said


@pytest.mark.parametrize("linker", ["aarch64-linux-gnu-gcc", "g++-12", "/opt/my sdk/bin/gcc"])
def test_a_linker_is_a_program_or_an_absolute_path(read, linker):
    assert read(GOOD + f"target: {{linker: {linker}}}\n").target.linker == linker


@pytest.mark.fault("A12")
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("linker: ./gcc", "should match pattern"),
        ("linker: -shared", "should match pattern"),
        ("linker: gcc -shared", "should match pattern"),
        ("linker: gcc, sysroot: sdk", "should match pattern"),
        ("sysroot: /sdk", "is for a `linker`, which is null"),
    ],
)
def test_a_linker_that_can_not_be_is_refused(refused, fields, said):
    (found,) = refused(GOOD + f"target: {{{fields}}}\n")
    assert said in found


@pytest.mark.fault("A12")
def test_a_processor_that_llvm_does_not_know_is_refused(refused):
    said = "f:9:16: target.mcpu: 'znver9' is no processor that LLVM knows; did you mean `znver5`?"
    assert refused(GOOD + "target: {mcpu: znver9}\n") == [said]
    assert "LLVM knows" in refused(GOOD + "target: {mcpu: z, mtriple: aarch64-linux-gnu}\n")[0]


@pytest.mark.parametrize(
    "fields", ["mcpu: cortex-a72", "mcpu: x86-64-v3", "mcpu: any, mtriple: avr-unknown-none"]
)
def test_a_processor_of_any_architecture_may_be_compiled_for(read, fields):
    assert read(GOOD + f"target: {{{fields}}}\n").target.mcpu in fields


@pytest.mark.parametrize("arch", ["sm_90", "sm_90a", "sm_120f", "nvidia/nvidia-h100", "native"])
def test_a_gpu_is_an_architecture_or_has_a_name(read, arch):
    assert read(GOOD + f"target: {{kind: cuda, arch: {arch}}}\n").target.arch == arch


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("arch: sm_90", ["target.arch: 'sm_90' is for kind cuda; a processor is named by mcpu"]),
        (
            "kind: cuda, mcpu: znver4, mattr: [+avx2], mtriple: x86_64-linux-gnu",
            [
                "target.mcpu: 'znver4' is for kind llvm; the host of a GPU is this machine",
                "target.mattr: a list is for kind llvm; the host of a GPU is this machine",
                (
                    "target.mtriple: 'x86_64-linux-gnu' is for kind llvm; "
                    "the host of a GPU is this machine"
                ),
            ],
        ),
        ("kind: cuda, arch: compute_90", ["target.arch: 'compute_90' should match pattern"]),
        ("kind: cuda, arch: sm_90 -lineinfo", ["'sm_90 -lineinfo' should match pattern"]),
    ],
)
def test_fields_of_a_processor_are_not_those_of_a_gpu(refused, fields, said):
    found = refused(GOOD + f"target: {{{fields}}}\n")
    assert len(found) == len(said)
    assert all(part in line for part, line in zip(said, found, strict=True))


@pytest.mark.parametrize(
    ("benchmark", "said"),
    [
        ("null", "cannot be checked: `benchmark` is null"),
        ("{rounds: 2}", "needs 3 rounds: `benchmark.rounds` is 2"),
    ],
)
def test_a_regression_needs_rounds_to_tell_noise_by(refused, read, benchmark, said):
    gates = "gates={regression: {baseline: p.baseline.json}}"
    (line,) = refused(GOOD + f"benchmark: {benchmark}\n", gates)
    assert line.endswith(f": 'p.baseline.json' {said}")
    assert read(GOOD, gates).gates.regression.max == 1.05


@pytest.mark.parametrize("name", ["../x", "", ".x", "a/b", "a b", "x" * 101, "a\n"])
def test_a_name_is_a_file_name_everywhere(refused, name):
    (said,) = refused(GOOD, f"name={name!r}".replace("\\n", "\n\n"))
    assert said.startswith("--set name: ")


@pytest.mark.fault("A12")
@pytest.mark.parametrize(
    ("hardware", "says"),
    [
        ("{vector_bits: 384}", "hardware.vector_bits: 384 is not a power of two"),
        ("{vector_bits: 4096}", "hardware.vector_bits: 4096 should be less than or equal to 2048"),
        ("{vector_bits: 512}, mattr: [-avx512f]", "512 contradicts `mattr`, which takes avx512f"),
        ("{registers: 2}", "hardware.registers: 2 should be greater than or equal to 4"),
        ("{l1: 65536, l2: 32768}", "hardware.l1: 65536 should not be more than `l2`, 32768"),
    ],
)
def test_hardware_that_can_not_be_is_refused(refused, hardware, says):
    (said,) = refused(GOOD + f"target: {{hardware: {hardware}}}\n")
    assert says in said


OPEN = """\
version: 1
name: a
model:
  path: mlp.onnx
  inputs: {x: {shape: [n, 8], dtype: float32}}
  dimensions: {n: {max: 64, likely: [1]}}
"""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (GOOD + "target: {kind: cuda, arch: sm_90}\n", "is for processors only"),
        (OPEN, "is for models whose sizes are known"),
    ],
)
def test_products_in_bfloat16_want_a_processor_and_sizes(refused, text, says):
    said = refused(text + "numerics: {compute: bfloat16}\n")
    assert any(f"numerics.compute: 'bfloat16' {says}" in one for one in said)
