"""Tunes one PrimFunc alone, with the engines, the measurement and the checks of a pipeline."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar

import tvm
from pydantic import JsonValue, ValidationError

from autopipe.compiler.module_io import load_module, prim_funcs, save_module
from autopipe.compiler.op_info import described
from autopipe.config import Frozen, Target, Tuning
from autopipe.config.schedules import Rule
from autopipe.environment.environment import Host
from autopipe.environment.facet import Facet
from autopipe.errors import ConfigError, ModelError
from autopipe.pipeline.events import Event
from autopipe.pipeline.isolate import Zygote
from autopipe.stages import PRELOADED
from autopipe.store.store import Store, open_store
from autopipe.tasks.op_info import OpInfo

_ALONE: Final = "autopipe.tuning.alone:answer"
_Section = TypeVar("_Section", bound=Frozen)

_EXAMINE: Final = "autopipe.compiler.stack:examine"
_MICROSECOND: Final = 1e-6
_FACETS: Final = (Facet.TVM, Facet.TARGET, Facet.DEVICE)


@dataclass(frozen=True, slots=True)
class ContenderSummary:
    """How one contender did."""

    engine: str
    """Who proposed its schedules; `static` or `default` for those that nobody searched."""
    implementation: str
    trials: int
    failed: int
    seconds: float | None
    """Median of one call with its best schedule; None if none of its trials gave a time."""
    stopped: str | None
    """Why it was not asked any more; None if it was until the end."""


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A PrimFunc with the fastest schedule that was found."""

    module: tvm.IRModule
    """The scheduled PrimFunc, as `main`."""
    engine: str
    implementation: str
    schedule: str
    """How it is made again: TVM's trace, or a template and its knobs, as JSON."""
    seconds: float
    """Median of one call."""
    flops: float
    """Floating-point operations of one call, as TVM counts them."""
    unchecked: str | None
    """Why it could not be compared with the plain loops; None if it computes the same."""
    ended: str
    """Why tuning ended."""
    contenders: tuple[ContenderSummary, ...]
    """Who took part, the fastest first."""

    def __str__(self) -> str:
        """Return a table of the contenders, and who won."""
        rows = [("engine", "implementation", "trials", "failed", "best")]
        rows += [
            (c.engine, c.implementation, str(c.trials), str(c.failed), _time(c.seconds))
            for c in self.contenders
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(f"{cell:{'<' if at < 2 else '>'}{widths[at]}}" for at, cell in enumerate(row))  # noqa: PLR2004 - names stand left, numbers right
            for row in rows
        ]
        rate = f", {self.flops / self.seconds / 1e9:.1f} GFLOPS" if self.flops else ""
        sound = "agrees with the plain loops"
        if self.unchecked is not None:
            sound = f"not checked: {self.unchecked}"
        won = f"{self.engine} on {self.implementation}: {_time(self.seconds)}{rate}; {sound}"
        return "\n".join([*lines, "", won])


def auto_schedule(  # noqa: PLR0913 - one for each way in which a search may be limited
    module: tvm.IRModule | tvm.tirx.PrimFunc,
    *,
    target: Mapping[str, JsonValue] | None = None,
    trials: int = 64,
    seconds: float | None = None,
    engines: Sequence[str] = ("autotvm", "ansor"),
    info: Mapping[str, JsonValue] | None = None,
    seed: int = 0,
    fast_algorithms: bool = True,
    store: Path | str | None = None,
    emit: Callable[[Event], None] = lambda _: None,
) -> Scheduled:
    """Tune a PrimFunc alone and return it with the fastest schedule, which was checked.

    `module` holds one PrimFunc with static shapes. `target` is section `target` of a pipeline file,
    None this machine. Tuning ends after so many `trials` or `seconds`, whichever comes first.
    `info` is the op information that `autopipe tasks --json` shows, None what the PrimFunc carries.
    `store` is a folder that keeps what was measured for the next time; without one, all is
    forgotten. Candidates are built and timed in processes that this one only watches.

    Raises ConfigError for an option that can not be, ModelError for a module that can not be tuned,
    TargetError where nothing can be timed, StageError if no candidate could be measured, SetupError
    and StoreError.
    """
    loops = _single(module)
    if info is not None:
        loops = described(loops, _valid(OpInfo, info, info="info"))
    goal = _valid(Target, target or {}, target="target")
    tuning = _valid(
        Tuning, {"budget": {"trials": trials, "time": seconds}, "seed": seed,
                 "measure": {"clock": "loop"}},  # it stands in no model
        trials="budget.trials", seconds="budget.time",
    )  # fmt: skip
    names = (engines,) if isinstance(engines, str) else tuple(engines)
    rule = _valid(Rule, {"engines": names})
    request: dict[str, object] = {
        "tuning": tuning.model_dump_json(),
        "rule": rule.model_dump_json(),
        "fast_algorithms": fast_algorithms,
    }
    with _opened(store) as opened:
        return _tuned(loops, goal, request, opened, emit)


def _tuned(
    loops: tvm.IRModule,
    target: Target,
    request: Mapping[str, object],
    store: Store,
    emit: Callable[[Event], None],
) -> Scheduled:
    """Have a child process tune `main` of a module."""
    log = store.root / "logs" / "auto_schedule.log"
    folder = store.out()
    save_module(loops, folder / "module.json")
    places = {"folder": str(folder), "records": str(store.root / "records" / "records.sqlite")}
    with Zygote(PRELOADED, store.tmp) as zygote:
        facts = Host(target, store, lambda: _stack(zygote, log)).facts(_FACETS)
        plain = {facet.value: dict(said) for facet, said in facts.items()}
        answer: Any = zygote.call(_ALONE, {**request, **places, "facts": plain}, log, emit)
    contenders = tuple(ContenderSummary(**contender) for contender in answer.pop("contenders"))
    scheduled = load_module(folder / "scheduled.json")
    return Scheduled(module=scheduled, contenders=contenders, **answer)


def _single(module: tvm.IRModule | tvm.tirx.PrimFunc) -> tvm.IRModule:
    """Return the module of the one PrimFunc. Raises ModelError if there is not exactly one."""
    if isinstance(module, tvm.tirx.PrimFunc):
        return tvm.IRModule({"main": module})
    functions = prim_funcs(module) if isinstance(module, tvm.IRModule) else []
    if len(functions) != 1:
        names = f": {', '.join(name for name, _ in functions)}" if functions else ""
        raise ModelError(
            f"a module with one PrimFunc is needed; this one has {len(functions)}{names}"
        )
    return tvm.IRModule({"main": functions[0][1]})


@contextmanager
def _opened(folder: Path | str | None) -> Iterator[Store]:
    """Open a store, one that is deleted afterwards unless a folder is named."""
    if folder is not None:
        with open_store(Path(folder)) as store:
            yield store
        return
    with TemporaryDirectory(prefix="autopipe-") as passing, open_store(Path(passing)) as store:
        yield store


def _stack(zygote: Zygote, log: Path) -> Mapping[str, str]:
    versions: Any = zygote.call(_EXAMINE, {}, log, lambda _: None)
    return dict(versions)


def _valid(kind: type[_Section], value: object, **options: str) -> _Section:
    """Return the section of a pipeline file; `options` are our names of what is wrong in it.

    Raises ConfigError.
    """
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        ours = {field: name for name, field in options.items()}
        told = []
        for problem in error.errors():
            field = ".".join(map(str, problem["loc"])) or next(iter(options), "")
            told.append(f"{ours.get(field, field)}: {problem['msg']}")
        raise ConfigError("; ".join(told)) from None


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1e6:.1f} us" if seconds >= _MICROSECOND else f"{seconds * 1e9:.1f} ns"
