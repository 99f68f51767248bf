"""A package is opened by NumPy and the C library alone, and answers as `autopipe.open_package`."""

import json
import math
import os
import shutil
import struct
import threading

import numpy as np
import pytest
from safetensors.numpy import save_file

from autopipe.artifacts.library import BuiltLibrary
from autopipe.artifacts.signature import LIBRARY
from autopipe.compiler.library.runtime import map_weights
from autopipe.compiler.target import cpu
from autopipe.environment.facet import Facet
from autopipe.export.wheel import write_runtime
from autopipe.packaging import archive
from autopipe.packaging.combine import combine_packages
from autopipe.packaging.manifest import MANIFEST, WEIGHTS
from autopipe.packaging.open import open_package
from autopipe.runtime import description
from autopipe.runtime import package as runtime
from autopipe.runtime.folder import CallError
from autopipe.runtime.weights import are_aligned, read_header, view_weight
from autopipe.stages.package import PackageStage
from tests.packaging.packages import FILES, changed, edit
from tests.support.shared import once
from tests.support.small_build import DENSE, TARGET, save_library

GIVEN = {
    "data/x": np.random.default_rng(1).standard_normal((4, 8)).astype("float32"),
    "ids": np.array([0, 4, 2, 1]),
}


@pytest.fixture(autouse=True)
def libraries(tmp_path_factory, monkeypatch):
    made = once(
        tmp_path_factory, "lib", lambda to: write_runtime(to / "lib", cpu.find_architecture({}))
    )
    monkeypatch.setattr(runtime, "_LIBRARIES", made / "lib")


@pytest.fixture
def opened(package):
    with runtime.open_package(package, threads=1) as model:
        yield model


def assert_same(outputs, expected):
    assert list(outputs) == list(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(outputs[name], array)
        assert outputs[name].dtype == array.dtype


@pytest.mark.parametrize("copies", [False, True])
def test_a_package_answers_as_in_autopipe_and_leaves_nothing_behind(
    package, tmp_path, monkeypatch, copies
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    expected = open_package(package)
    with runtime.open_package(package, instances=2, threads=1, copy_weights=copies) as model:
        assert not list((tmp_path / "temporary").iterdir())
        assert_same(model(GIVEN), expected(GIVEN))
        assert_same(model([*GIVEN.values()]), expected(GIVEN))
        with pytest.raises(CallError, match=r"1 inputs are given; the model takes data/x: float32"):
            model(GIVEN["ids"])
        for kind in ("inputs", "outputs"):
            ours, theirs = getattr(model.signature, kind), getattr(expected.signature, kind)
            assert [(p.name, p.dtype, p.shape) for p in ours] == [
                (p.name, p.dtype, p.shape) for p in theirs
            ]
        assert model.signature.threads == 1
    with pytest.raises(CallError, match="closed"):
        model(GIVEN)
    model.close()


@pytest.mark.parametrize(("dtype", "halves"), [("float32", False), ("float16", True)])
def test_weights_that_cannot_be_mapped_are_aligned_and_widened(
    context, library, tmp_path, dtype, halves
):
    folder = tmp_path / "library"
    shutil.copytree(library, folder)
    data = map_weights(library / WEIGHTS)
    stored = {name: view_weight(data, one) for name, one in read_header(data.data).items()}
    arrays = {name: array.astype(dtype) for name, array in stored.items()}
    save_file({"a/first": np.ones(3, "int8"), **arrays}, folder / WEIGHTS)
    assert not are_aligned(read_header(map_weights(folder / WEIGHTS).data))
    names = tuple(stored) if halves else ()
    BuiltLibrary.read(folder).model_copy(update={"halves": names}).write(folder)
    ctx = context(build=folder)
    PackageStage(pipeline="small", configuration={"version": 1}).run(ctx)
    with runtime.open_package(ctx.out / "small.tar", threads=1) as model:
        assert_same(model(GIVEN), open_package(ctx.out / "small.tar")(GIVEN))


def test_of_a_combined_package_the_best_build_is_loaded(package, context, tmp_path):
    best, plain = package.rename(tmp_path / "best.tar"), tmp_path / "plain"
    plain.mkdir()
    save_library(plain, DENSE.replace("T.float32(0)", "T.float32(1)"))
    ctx = context(build=plain)
    ctx.facts[Facet.TARGET] = {**TARGET, "mcpu": "x86-64"}
    PackageStage(pipeline="small", configuration={"version": 1}).run(ctx)
    both = tmp_path / "both.tar"
    assert combine_packages([best, ctx.out / "small.tar"], both) == ["x86-64", "x86-64-v2"]
    with runtime.open_package(both, threads=1) as model:
        outputs = model(GIVEN)
    assert_same(outputs, open_package(best)(GIVEN))
    assert_same(outputs, open_package(both)(GIVEN))
    others = open_package(ctx.out / "small.tar")(GIVEN)
    assert np.abs(others["scores"] - outputs["scores"]).max() > 1e-3


def test_outputs_are_written_into_arrays_that_are_given(opened):
    expected, scores = opened(GIVEN), np.empty((4, 8), "float32")
    outputs = opened(GIVEN, outputs={"scores": scores})
    assert outputs["scores"] is scores
    assert_same(outputs, expected)


@pytest.mark.parametrize(
    ("outputs", "reason"),
    [
        ({"Scores": np.empty((4, 8), "float32")}, "the model has no output 'Scores'"),
        ({"scores": [0.0] * 4}, "the array for output 'scores' is a list"),
        ({"scores": np.empty((4, 8), "float64")}, r"is float64 \[4, 8\]; the model returns"),
        ({"scores": np.empty((4, 8), ">f4")}, r"is >f4 \[4, 8\]"),
        ({"scores": np.empty((4, 9), "float32")}, r"is float32 \[4, 9\]"),
        ({"scores": np.empty(32, "float32")}, r"is float32 \[32\]"),
        ({"scores": np.empty((8, 4), "float32").T}, "not contiguous"),
        ({"scores": np.frombuffer(bytes(128), "float32").reshape(4, 8)}, "read-only"),
    ],
)
def test_an_array_that_takes_no_output_is_refused(opened, outputs, reason):
    with pytest.raises(CallError, match=reason) as raised:
        opened(GIVEN, outputs=outputs)
    assert raised.value.status == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"ids": GIVEN["ids"].astype(">i8")}, "input 'ids' is >i8"),
        ({"ids": GIVEN["ids"].astype("int32")}, "input ids is int32"),
        ({"ids": np.zeros((1,) * 20, "int64")}, r"input 'ids' is int64 .* no model takes"),
        ({"else": GIVEN["ids"]}, "no input else"),
        ({"data/x": np.zeros((4, 9), "float32")}, "input data/x"),
    ],
)
def test_an_input_that_does_not_fit_is_refused(opened, change, reason):
    with pytest.raises(CallError, match=reason):
        opened({**GIVEN, **change})
    assert_same(opened({name: array.tolist() if name == "ids" else array for name, array in
                       GIVEN.items()}), opened(GIVEN))  # fmt: skip


def test_a_stream_keeps_states_as_in_autopipe(opened, package):
    states = {"data/x": "scores"}
    for start in (None, {"data/x": GIVEN["data/x"]}):
        ours, theirs = (one.stream(states, start) for one in (opened, open_package(package)))
        for _ in range(3):
            np.testing.assert_array_equal(ours.states["data/x"], theirs.states["data/x"])
            assert_same(ours({"ids": GIVEN["ids"]}), theirs({"ids": GIVEN["ids"]}))
        with pytest.raises(CallError):
            ours({"ids": GIVEN["ids"][:2]})
        best = np.empty(4, "int64")
        assert ours({"ids": GIVEN["ids"]}, outputs={"best": best})["best"] is best
        theirs({"ids": GIVEN["ids"]})
        np.testing.assert_array_equal(ours.states["data/x"], theirs.states["data/x"])
        ours.reset()
        assert not ours.states["data/x"].any()


@pytest.mark.parametrize(
    ("states", "start", "reason"),
    [
        ({"x": "scores"}, None, "no input 'x'"),
        ({"data/x": "y"}, None, "with an output 'y'"),
        ({"ids": "scores"}, None, "cannot be input"),
        ({"data/x": "scores"}, {"ids": GIVEN["ids"]}, "'ids' is no state"),
        ({"data/x": "scores"}, {"data/x": np.zeros(4)}, "is no state, or not data/x"),
    ],
)
def test_states_that_are_none_are_refused(opened, states, start, reason):
    with pytest.raises(CallError, match=reason):
        opened.stream(states, start)
    stream = opened.stream({"data/x": "scores"})
    with pytest.raises(CallError, match="is a state"):
        stream(GIVEN)
    with pytest.raises(CallError, match="is a state"):
        stream({"ids": GIVEN["ids"]}, outputs={"scores": np.empty((4, 8), "float32")})


@pytest.mark.parametrize("limit", [-1, math.nan])
def test_a_limit_that_is_no_duration_is_refused(opened, limit):
    with pytest.raises(CallError, match="it takes seconds from 0"):
        opened(GIVEN, limit=limit)
    for allowed in (60, 0.5, math.inf):
        assert_same(opened(GIVEN, limit=allowed), opened(GIVEN))


def test_several_threads_call_at_the_same_time(package):
    expected = open_package(package)(GIVEN)
    wrong: list[str] = []
    with runtime.open_package(package, instances=2, threads=1) as model:

        def call():
            for _ in range(50):
                outputs = model(GIVEN)
                wrong.extend(n for n in expected if not np.array_equal(outputs[n], expected[n]))

        threads = [threading.Thread(target=call) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert wrong == []


@pytest.mark.parametrize(
    ("options", "variable", "reason"),
    [
        ({"threads": 0}, None, "threads is 0"),
        ({"instances": -1}, None, "instances is -1"),
        ({"instances": True}, None, "instances is True"),
        ({}, "two", "threads is 'two'"),
    ],
)
def test_numbers_that_are_none_are_refused(package, monkeypatch, options, variable, reason):
    if variable:
        monkeypatch.setenv("TVM_NUM_THREADS", variable)
    with pytest.raises(CallError, match=f"{reason}; it takes a whole number from 1"):
        runtime.open_package(package, **options)


NEEDS = ("predicate", "buildDefinition", "internalParameters")


@pytest.mark.fault("E11")
@pytest.mark.parametrize(
    ("change", "status", "reason"),
    [
        (edit("subject", value=[]), 3, "lists other files"),
        (edit("subject", 0, "name", value="../x"), 3, "lists other files"),
        (edit("subject", value=3), 3, "does not fit"),
        (edit("subject", 1, "digest", "sha256", value="0" * 64), 3, "'lib.so' is damaged"),
        (edit("subject", 1, "annotations", "size", value=7), 3, "'lib.so' is damaged"),
        (edit("predicate", value=[]), 3, "does not fit"),
        (edit(*NEEDS, "signature", value={}), 3, "does not fit"),
        (edit(*NEEDS, "signature", "threads", value="two"), 3, "model.txt"),
        (edit(*NEEDS, "signature", "threads", value="2\nlibrary x.so"), 3, "does not fit"),
        (edit(*NEEDS, "signature", "weights", value=["nothing"]), 3, "does not fit"),
        (edit(*NEEDS, "signature", "halves", value=["nothing"]), 3, "nothing is not float16"),
        (edit(*NEEDS, "signature", "device", value="cuda"), 4, "takes autopipe itself"),
        (edit(*NEEDS, "processor", "machine", value="riscv64"), 4, "built for riscv64"),
        (edit(*NEEDS, "processor", "features", value=["magic"]), 3, "magic"),
        (
            edit(*NEEDS, "runtime", value={"apache-tvm": "9"}),
            4,
            "the package needs apache-tvm 9",
        ),
    ],
)
def test_a_manifest_that_does_not_fit_is_one_line_and_a_status(package, change, status, reason):
    with pytest.raises(CallError, match=reason) as raised:
        runtime.open_package(changed(package, manifest=change))
    assert raised.value.status == status
    assert "\n" not in str(raised.value)


def paths_of(value, path=()):
    """The path of every value of a document; of lists that of the first one."""
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from paths_of(inner, (*path, key))
    elif isinstance(value, list) and value:
        yield from paths_of(value[0], (*path, 0))


OTHERS: list[object] = [None, -1, "x\ny", [], {}, [None], {"": 1}, [[]], 1e9, True]


def replace(document, path, value):
    if not path:
        return value
    for key in path[:-1]:
        document = document[key]
    document[path[-1]] = value
    return None


@pytest.mark.fault("E11")
def test_no_value_of_a_manifest_is_more_than_a_line(package, monkeypatch):
    """Every value is replaced by others; those that nothing reads may pass."""
    monkeypatch.setattr(runtime, "load_library", lambda *_: None)
    monkeypatch.setattr(runtime, "open_folder", lambda *_: None)
    with archive.open_archive(package, FILES) as (file, members):
        names = sorted(members)
        contents = {name: archive.read_member(file, members[name], 1 << 30) for name in names}
    document = json.loads(contents[MANIFEST])
    folder = package.parent / "files"
    folder.mkdir()
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    reasons = []
    for path in paths_of(document):
        for value in OTHERS:
            changed_document = json.loads(contents[MANIFEST])
            replaced = replace(changed_document, path, value)
            text = json.dumps(changed_document if path else replaced)
            (folder / MANIFEST).write_text(text)
            archive.write_archive(folder / "out.tar", {name: folder / name for name in names})
            try:
                runtime.open_package(folder / "out.tar")
            except CallError as error:
                reasons.append(str(error))
    assert len(reasons) > 200
    assert [reason for reason in reasons if "\n" in reason] == []


@pytest.mark.fault("C6", "E11")
def test_no_damage_of_a_package_reaches_the_loader(package, tmp_path, monkeypatch):
    """Cut anywhere, and flipped anywhere but in the manifest, which no digest covers."""
    monkeypatch.setattr(runtime, "load_library", lambda *_: None)
    monkeypatch.setattr(runtime, "open_folder", lambda *_: pytest.fail("it was loaded"))
    with archive.open_archive(package, FILES) as (_, members):
        manifest = members[MANIFEST]
    whole = package.read_bytes()
    damaged = tmp_path / "damaged.tar"
    random = np.random.default_rng(0)
    for place in random.integers(0, len(whole), 60):
        contents = [whole[:place], whole[:place] + whole[place + 1 :]]
        if not 0 <= place - manifest.start < manifest.size:
            flipped = bytearray(whole)
            flipped[place] ^= 1 << random.integers(8)
            contents.append(bytes(flipped))
        for content in contents:
            damaged.write_bytes(content)
            with pytest.raises(CallError) as raised:
                runtime.open_package(damaged)
            assert raised.value.status == 3
            assert "\n" not in str(raised.value)


def test_what_is_no_file_is_refused(tmp_path, package):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "nowhere.tar", tmp_path / "pipe", tmp_path):
        with pytest.raises(CallError) as raised:
            runtime.open_package(path)
        assert raised.value.status == 3
    link = tmp_path / "link.tar"
    link.symlink_to(package)
    with runtime.open_package(link, threads=1) as model:
        assert_same(model(GIVEN), open_package(package)(GIVEN))


def test_a_package_that_is_replaced_stays_open(package, tmp_path):
    with runtime.open_package(package, threads=1) as model:
        expected = model(GIVEN)
        (tmp_path / "new.tar").write_bytes(struct.pack("q", 0))
        (tmp_path / "new.tar").replace(package)
        assert_same(model(GIVEN), expected)


def test_the_runtime_knows_the_library_by_its_name():
    assert description.LIBRARY == LIBRARY
    assert json.loads((runtime._LIBRARIES / runtime.RUNTIME).read_text())["versions"]
