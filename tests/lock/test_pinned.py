import pytest

from autopipe.config.target import Target
from autopipe.lock.pinned import list_contradictions
from tests.lock.examples import TARGET
from tests.support.table import each_row


@each_row("asked", [
    {}, {"mcpu": "znver4", "num_cores": 2}, {"hardware": {"l1": 32768}},
    {"mtriple": "x86_64-linux-gnu", "linker": "cc"}, {"mattr": ("+avx512bf16",)},
])  # fmt: skip
def test_what_the_file_leaves_to_the_machine_is_the_locks(asked):
    locked = {**TARGET, "mattr": ["-sse4a", "+avx512bf16"]} if "mattr" in asked else TARGET
    assert list_contradictions(Target(**asked), locked) == []


@pytest.mark.fault("C21")
@each_row("asked, said", [
    ({"mcpu": "haswell"}, "target.mcpu: the lock has znver4, the pipeline file haswell"),
    ({"num_cores": 4}, "target.num_cores: the lock has 2, the pipeline file 4"),
    ({"kind": "cuda"}, "target.kind: the lock has llvm, the pipeline file cuda"),
    ({"hardware": {"l1": 1 << 16}}, "target.hardware.l1: the lock has 32768, the pipeline file"),
    ({"mattr": ("-avx512f",)}, "target.mattr: the lock has [], the pipeline file ['-avx512f']"),
])  # fmt: skip
def test_a_lock_whose_target_the_file_denies_is_not_current(asked, said):
    (line,) = list_contradictions(Target(**asked), TARGET)
    assert line.startswith(said)
