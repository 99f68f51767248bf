import os

import pytest

from autopipe.errors import StageError
from autopipe.host import memory, refusal
from autopipe.pipeline import packed
from autopipe.processes.bounds import ceiling, hold
from tests.support import hungry


@pytest.mark.fault("J6")
def test_a_process_that_is_held_gets_no_more():
    child = os.fork()
    if child == 0:
        try:
            hold(2**28)
            hungry.take(2**29)
        except MemoryError:
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.fault("J6")
@pytest.mark.parametrize(
    "error",
    [MemoryError(), RuntimeError("std::bad_alloc"), StageError("broke: MemoryError"),
     RuntimeError("LLVM ERROR: out of memory")],
)  # fmt: skip
def test_a_stage_that_gets_no_memory_says_so(monkeypatch, tmp_path, error):
    class Hungry:
        name = "hungry"

        @classmethod
        def model_validate_json(cls, _):
            return cls()

        def run(self, _):
            raise error

    monkeypatch.setattr(packed, "import_module", lambda _: type("M", (), {"S": Hungry}))
    monkeypatch.setattr(packed, "hold", lambda limit: limit)
    monkeypatch.setattr(packed, "ceiling", lambda: 5 << 20)
    folders = dict.fromkeys(("out", "work", "records"), str(tmp_path))
    argument = {
        "stage": "m:S", "params": "", "inputs": {}, "facts": {}, "forced": False,
        "diagnostics": {"ir_folder": None, "pass_times": False, "verbosity": 0}, **folders,
    }  # fmt: skip
    with pytest.raises(StageError, match="needs more than the 5 MiB that a stage may take here"):
        packed.run_packed_stage(argument, lambda _: None)


def test_a_container_has_what_it_may_take(monkeypatch, tmp_path):
    (tmp_path / "max").write_text(str(2**31))
    monkeypatch.setattr(memory, "_files", lambda _names: [tmp_path / "max"])
    assert memory.available() == 2**31
    assert ceiling() == 2**31 * 7 // 8


@pytest.mark.parametrize("text", ["std::bad_alloc", "numpy: Unable to allocate 4.00 GiB"])
def test_words_for_no_memory(text):
    assert refusal.explain_memory_refusal(text)
    assert refusal.explain_memory_refusal("the shapes do not fit") is None
