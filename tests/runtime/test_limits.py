"""A call of the C library ends between two kernels, and says so as autopipe does."""

import json
import math
import shutil
import time
from hashlib import sha256

import pytest

from autopipe.compiler import module_io
from autopipe.compiler.target import cpu
from autopipe.export.wheel import write_runtime
from autopipe.runtime import folder as runtime
from autopipe.runtime.description import describe_builds
from autopipe.runtime.folder import CallError, CallLimitError
from tests.compiler.library import test_call_limit as kernels
from tests.compiler.library.test_call_limit import STEPS, X, folder, is_right, ticks  # noqa: F401 - fixtures
from tests.support.shared import once


@pytest.fixture
def model(folder, ticks, tmp_path, tmp_path_factory):  # noqa: F811 - fixtures
    made = once(
        tmp_path_factory, "lib", lambda to: write_runtime(to / "lib", cpu.find_architecture({}))
    )
    needs = {
        "signature": kernels.SIGNATURE.model_dump(mode="json"),
        "processor": {"machine": cpu.find_architecture({}), "mcpu": "any", "features": []},
    }
    library = (folder / "lib.so").read_bytes()
    (tmp_path / "lib.so").write_bytes(library)
    (tmp_path / "model.txt").write_text(next(describe_builds(needs, {}))[1])
    module_io.save_aligned_weights({}, tmp_path / "weights.safetensors")
    stated = json.loads((made / "lib" / "runtime.json").read_text())["sha256"]
    digests = {"lib.so": sha256(library).hexdigest(), **{f"lib/{n}": d for n, d in stated.items()}}
    (tmp_path / "SHA256SUMS").write_text("".join(f"{d}  {n}\n" for n, d in digests.items()))
    (tmp_path / "lib").symlink_to(made / "lib")
    with runtime.open_package(tmp_path, threads=1) as opened:
        yield opened


def test_of_two_loaded_libraries_each_states_its_own_errors(model, ticks, tmp_path):  # noqa: F811
    shutil.copytree(tmp_path / "lib", tmp_path / "two" / "lib")
    for name in ("lib.so", "model.txt", "weights.safetensors", "SHA256SUMS"):
        shutil.copy(tmp_path / name, tmp_path / "two")
    opened = runtime.open_package(tmp_path / "two", threads=1)
    ticks.act = lambda count: opened.cancel()
    with opened, pytest.raises(CallLimitError, match="cancelled"):
        opened({"x": X}, limit=30)


@pytest.mark.parametrize("limit", [30, math.inf])
def test_a_cancelled_call_runs_no_further_kernel(model, ticks, limit):  # noqa: F811
    for _ in range(20):
        ticks.count, ticks.act = 0, lambda count: model.cancel() if count == 3 else None
        with pytest.raises(CallLimitError, match="cancelled") as raised:
            model({"x": X}, limit=limit)
        assert (raised.value.status, ticks.count) == (8, 3)
    assert is_right(model, ticks, limit=limit)
    assert is_right(model, ticks)


def test_a_call_ends_once_its_time_is_over(model, ticks):  # noqa: F811
    ticks.act = lambda count: time.sleep(0.03)
    with pytest.raises(TimeoutError, match="did not end within 20 ms") as raised:
        model({"x": X}, limit=0.02)
    assert isinstance(raised.value, CallError)
    assert raised.value.status == 7
    assert ticks.count <= 1
    assert is_right(model, ticks, limit=60)


def test_states_stay_when_a_call_of_a_stream_ends(model, ticks):  # noqa: F811
    stream = model.stream({"x": "y"}, {"x": X})
    stream({})
    ticks.act = lambda count: model.cancel()
    with pytest.raises(CallLimitError):
        stream({}, limit=60)
    assert stream.states["x"].tolist() == (X * 2**STEPS).tolist()
    ticks.act = lambda count: None
    stream({}, limit=60)
    assert stream.states["x"].tolist() == (X * 2 ** (2 * STEPS)).tolist()
