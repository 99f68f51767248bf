"""Kernels timed inside the whole model, with one set of schedules after the other, in one child.

Here nobody has to guess what the caches hold, or how the kernel before divides its work: all of the
model runs. It is built once. Its virtual machine asks before each call of a kernel (an *instrument*
of TVM's), and whom it asks calls the kernel himself, times it, and tells the machine to skip the
call. So he may call another schedule of the same function, which was compiled alone.
Weights and inputs are made up, as the time of a kernel does not depend on them.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import starmap
from math import prod
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final, Self

import tvm
from tvm import relax
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm_ffi import Shape

from autopipe.artifacts.model_nodes import PACKED
from autopipe.artifacts.signature import LIBRARY
from autopipe.compiler.graph.hoist import COUNT
from autopipe.compiler.library import build as library
from autopipe.compiler.library import linking
from autopipe.compiler.library.kernel_threads import shorten_spin, use_threads
from autopipe.measure import build, shipped
from autopipe.measure.call_watch import set_watch
from autopipe.measure.shipped import ShippedModel
from autopipe.measure.tensors import make_tensor, make_weight_tensors
from autopipe.processes.contained import Child, Failed
from autopipe.store.passing import open_temporary_folder

Place = Mapping[str, int]
"""Which of its schedules a function runs with, by name: the first one where nothing is said."""

RUNS: Final = 3
"""Runs of a round that count, of which the median is taken, after one that does not."""

_LONG: Final = 0.01
"""Seconds of a run of which one is enough: what disturbs it lasts less long."""


@dataclass(frozen=True, slots=True)
class ModelSource:
    """What a model with several schedules of each function is made from."""

    lowered: tvm.IRModule
    bodies: Mapping[str, Sequence[tvm.IRModule]]
    """Scheduled modules of each function, by its name in `lowered`; their `main` is the body."""
    target: tvm.target.Target
    cores: int


class InModel:
    """A model in a child; whatever happens there ends there."""

    def __init__(self, source: ModelSource, left: Callable[[], float]) -> None:
        """Take what it is made from; `left` returns the seconds that an answer may take."""
        self._child = Child(lambda: _WatchedModel(source).answer)
        self._left = left
        self._held = ExitStack()
        self._folder = self._held.enter_context(open_temporary_folder())
        self._models: dict[Ranks, ShippedModel] = {}

    def build(self, place: Place) -> None:
        """Build the model that is watched, with one set of schedules. Raises Failed."""
        self._ask({"do": "build", "place": dict(place)})

    def add(self, rank: int, functions: Sequence[str]) -> None:
        """Compile a schedule, by its rank, of functions that are equal. Raises Failed.

        Of rank 0, which the model has, too: to call what was compiled alone takes half a
        microsecond more.
        """
        self._ask({"do": "add", "rank": rank, "functions": list(functions)})

    def round(self, places: Sequence[Place]) -> Sequence[Mapping[str, float]]:
        """Run the model with one set of schedules after the other. Raises Failed.

        Returns for each of them the seconds of all calls of each function in one run.
        """
        return list(self._ask({"do": "round", "places": list(map(dict, places))}))

    def unwatched(self) -> float:
        """Return seconds of a run of the model that was built, when nobody looks into it.

        Raises Failed.
        """
        return float(self._ask({"do": "unwatched"}))

    def link(self, place: Place) -> None:
        """Build the library that a package with one set of schedules has. Raises Failed."""
        self._linked(place)

    def whole(self, places: Sequence[Place]) -> Sequence[float]:
        """Return seconds of a run of the model as packages with these sets of schedules run it.

        They are loaded by a new process, in this order. To watch a model costs its kernels
        something, and some of them more than others. Raises Failed.
        """
        models = [self._linked(place) for place in places]
        try:
            return shipped.time_models(models, self._left() / 2)
        except Failed:  # what fails does so twice
            return shipped.time_models(models, self._left())

    def _linked(self, place: Place) -> ShippedModel:
        key = _to_ranks(place)
        if key not in self._models:
            folder = self._folder / str(len(self._models))
            folder.mkdir()
            request = {"do": "link", "place": dict(place), "folder": str(folder)}
            self._models[key] = ShippedModel.of(self._ask(request))
        return self._models[key]

    def _ask(self, request: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
        self._child.seconds = max(0.0, self._left())
        return self._child.ask(request)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.close()
        self._held.close()


Weights = dict[tuple[int, int, str], tvm.runtime.Tensor]
"""Weights in other layouts than the model has: by the address of those of the model, number of
elements and dtype. So each call of a function reads weights of its own, as in a model; all
schedules of the function share this memory, of which a model with any of them has one as well."""


@dataclass(slots=True)
class _Alone:
    """A schedule that was compiled alone, as one function calls it."""

    main: Callable[..., None]
    shapes: Sequence[tuple[tuple[int, ...], str]]
    """Of what it takes."""
    weights: Weights
    own: dict[tuple[int, int], tvm.runtime.Tensor] = field(default_factory=dict)
    """Weights that it wants in another layout than the model has, by position, and by address of
    those of the model."""

    def taken(self, given: Sequence[tvm.runtime.Tensor]) -> list[tvm.runtime.Tensor]:
        """Return what it takes in the place of what the model gives."""
        return [self._choose_argument(at, tensor) for at, tensor in enumerate(given)]

    def _choose_argument(self, at: int, tensor: tvm.runtime.Tensor) -> tvm.runtime.Tensor:
        if _has_port_shape(
            tensor, self.shapes[at]
        ):  # not kept, as the model has other uses for its memory
            return tensor
        key = at, tensor.data_ptr()
        if key not in self.own:
            self.own[key] = self._make_other_weights(tensor.data_ptr(), *self.shapes[at])
        return self.own[key]

    def _make_other_weights(
        self, place: int, shape: tuple[int, ...], dtype: str
    ) -> tvm.runtime.Tensor:
        """Return weights of a shape that the model does not have."""
        key = place, prod(shape), dtype
        if key not in self.weights:
            (self.weights[key],) = make_weight_tensors([(shape, dtype)])
        return self.weights[key]._create_view(shape, dtype, 0)  # noqa: SLF001 -- as TVM's own code does


Ranks = frozenset[tuple[str, int]]
"""Which functions do not run with their first schedule, and with which one."""


@dataclass(frozen=True, slots=True)
class _Runnable:
    """A model that was built, and what it takes."""

    machine: relax.VirtualMachine
    given: Sequence[Any]

    def run(self) -> float:
        """Return the seconds of a run."""
        begun = perf_counter()
        self.machine["main"](*self.given)
        return perf_counter() - begun

    def timed(self) -> float:
        """Return the seconds of a run when nobody looks into it."""
        set_watch(self.machine.module, None)
        return median([self.run() for _ in range(_count_runs(self.run()))])


class _WatchedModel:
    """The model, in the child."""

    def __init__(self, source: ModelSource) -> None:
        self._source = source
        self._kernels: dict[str, dict[int, _Alone]] = defaultdict(dict)
        self._weights: dict[str, Weights] = defaultdict(dict)
        self._names = {name + PACKED: name for name in source.bodies}
        self._names |= {name: name for name in source.bodies}
        self._place: Place = {}
        self._times: dict[str, float] = {}
        self._built: dict[Ranks, library.Built] = {}
        self._runnable: _Runnable

    def answer(self, request: Mapping[str, Any]) -> object:
        """Do what `InModel` asks for."""
        shorten_spin()
        use_threads(self._source.cores)
        match request["do"]:
            case "build":
                self._load_model(request["place"])
            case "add":
                self._compile_schedule(request["rank"], request["functions"])
            case "round":
                return [self._time_kernels(place) for place in request["places"]]
            case "unwatched":
                return self._runnable.timed()
            case "link":
                return self._link(request["place"], Path(request["folder"])).document()
        return None

    def _build_model(self, place: Place) -> library.Built:
        """Return the model with these schedules, built once."""
        key = _to_ranks(place)
        if key not in self._built:
            source = self._source
            bodies = {name: some[place.get(name, 0)] for name, some in source.bodies.items()}
            for module in bodies.values():
                linking.load_libraries(module)
            self._built[key] = library.build_library(source.lowered, bodies, source.target)
        return self._built[key]

    def _load_model(self, place: Place) -> None:
        """Load the model with these schedules into this process."""
        built = self._build_model(place)
        machine = relax.VirtualMachine(built.executable, tvm.cpu())
        inputs = self._count_inputs(built)
        sizes = [Shape(built.steps)] if built.steps else []
        stored = make_weight_tensors(built.parameters[inputs:])
        given = [*starmap(make_tensor, built.parameters[:inputs]), *sizes, *stored]
        self._runnable = _Runnable(machine, given)

    def _link(self, place: Place, folder: Path) -> ShippedModel:
        """Write the library of the model with these schedules."""
        built, main = self._build_model(place), self._source.lowered["main"]
        library.export(built, folder / LIBRARY)
        inputs, made = self._count_inputs(built), main.ret_ty
        outputs = len(made.fields) if isinstance(made, relax.TupleType) else 1
        return ShippedModel(
            folder, built.parameters[:inputs], built.parameters[inputs:], outputs,
            self._source.cores, built.steps,
        )  # fmt: skip

    def _count_inputs(self, built: library.Built) -> int:
        """Return how many tensors are inputs; sizes are counted among these, and are none."""
        return int(self._source.lowered["main"].attrs[COUNT]) - bool(built.steps)

    def _compile_schedule(self, rank: int, functions: Sequence[str]) -> None:
        """Compile the schedule once that these functions have in common."""
        kernel = build.build_kernel(
            self._source.bodies[functions[0]][rank], self._source.target, asserts=True
        )
        infos = ArgInfo.from_prim_func(kernel.module["main"])
        shapes = [(tuple(map(int, info.shape)), str(info.dtype)) for info in infos]
        main = kernel.library["main"]
        for name in functions:
            self._kernels[name][rank] = _Alone(main, shapes, self._weights[name])

    def _time_kernels(self, place: Place) -> dict[str, float]:
        self._place = place
        model = self._runnable
        set_watch(model.machine.module, self)
        self._times, runs = defaultdict(float), []
        for _ in range(_count_runs(model.run())):
            self._times = defaultdict(float)
            model.run()
            runs.append(self._times)
        return {name: median(run[name] for run in runs) for name in runs[-1]}

    def begin(self, function: Callable[..., Any], symbol: str, given: Sequence[Any]) -> bool:
        """Time a kernel with the schedule that is asked for, in place of the model's."""
        name = self._names.get(symbol)
        if name is None:
            return False
        alone = self._kernels[name].get(self._place.get(name, 0))
        taken = given if alone is None else alone.taken(given)
        function = function if alone is None else alone.main
        begun = perf_counter()
        function(*taken)
        self._times[name] += perf_counter() - begun
        return True

    def end(self, symbol: str) -> None:
        """Look at nothing."""


def _count_runs(first: float) -> int:
    """Return how many runs count behind one that took so many seconds."""
    return 1 if first > _LONG else RUNS


def _to_ranks(place: Place) -> Ranks:
    return frozenset((name, rank) for name, rank in place.items() if rank)


def _has_port_shape(tensor: tvm.runtime.Tensor, port: tuple[tuple[int, ...], str]) -> bool:
    return (tuple(map(int, tensor.shape)), str(tensor.dtype)) == port
