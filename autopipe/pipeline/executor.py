"""The executor: walk the plan, reuse cached results, run the other stages."""

import logging
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final, NamedTuple, Protocol

from autopipe.environment.environment import Environment
from autopipe.errors import StageError, StoreError
from autopipe.pipeline import attempt
from autopipe.pipeline.counted import Watch
from autopipe.pipeline.events import (
    Emit,
    StageCached,
    StageFailed,
    StageFinished,
    StageResumed,
    StageSkipped,
    StageStarted,
    Warn,
)
from autopipe.pipeline.explain import explain_skip, name_action_kind
from autopipe.pipeline.history import History
from autopipe.pipeline.isolate import Isolate, Killed
from autopipe.pipeline.keys import build_action
from autopipe.pipeline.plan import Plan, Step
from autopipe.pipeline.stage import NO_DIAGNOSTICS, Context, Diagnostics
from autopipe.processes.interrupt import find_exit_code
from autopipe.store.artifact import Artifact, Kind
from autopipe.store.canonical import Document, digest_json
from autopipe.store.store import Store, find_records

_LOG: Final = logging.getLogger(__name__)


class Remote(Protocol):
    """A store that machines share."""

    def fetch(self, document: Document, kind: Kind) -> Artifact | None:
        """Copy the artifact of an action into the store; None if it is not available."""

    def offer(self, key: str) -> None:
        """Upload the result of a key to the remote."""


Look = Callable[[str, Mapping[str, Artifact]], None]
"""Called with the name of a completed stage, and all artifacts so far."""


def _ignore_artifacts(stage: str, artifacts: Mapping[str, Artifact]) -> None:
    """Do nothing."""


class Executor(NamedTuple):
    """Runs plans against one store, in one environment, with one reporter."""

    store: Store
    environment: Environment
    isolate: Isolate
    emit: Emit
    remote: Remote | None = None
    look: Look = _ignore_artifacts
    """Called after each stage, cached or not; may raise GateError."""
    history: History | None = None
    """Records the last run of the pipeline file; None for runs without one."""
    diagnostics: Diagnostics = NO_DIAGNOSTICS

    def run(self, plan: Plan, *, force: Collection[str] = ()) -> dict[str, Artifact]:
        """Run every step in order and return the artifact of each, by stage name."""
        artifacts: dict[str, Artifact] = {}
        for step in plan:
            inputs = {name: artifacts[name] for name in step.needs}
            try:
                artifacts[step.name] = self._step(step, inputs, fresh=step.name in force)
                self.look(step.name, artifacts)
            except Exception as error:
                failure = StageFailed(
                    stage=step.name, error=str(error), exit_code=find_exit_code(error)
                )
                self.emit(failure)
                raise
        return artifacts

    def _step(self, step: Step, inputs: Mapping[str, Artifact], *, fresh: bool) -> Artifact:
        facts = self.environment.facts(step.stage.reads)
        digests = {name: artifact.digest for name, artifact in inputs.items()}
        document = build_action(step.stage, digests, facts, self.store.contents)
        key = digest_json(document)
        _LOG.info("%s: key %s", step.name, key)
        _LOG.debug("%s: the key is of %s", step.name, document)
        artifact = self._make_or_reuse(step, inputs, document, fresh=fresh)
        if self.history is not None:
            self.history.remember_action(name_action_kind(document), key)
        return artifact

    def _make_or_reuse(
        self, step: Step, inputs: Mapping[str, Artifact], document: Document, *, fresh: bool
    ) -> Artifact:
        """Return the artifact of an action: looked up, fetched, or made."""
        key = digest_json(document)
        hit = None if fresh else self._find_stored(step, key)
        if hit is not None:
            return hit
        with self.store.lock(key, lambda holder: self._emit_warning(step, f"waiting for {holder}")):
            if not fresh:  # another run may have made it, here or elsewhere
                hit = self._find_stored(step, key) or self._fetch_remote(step, document)
            return hit or self._execute_step(step, inputs, document, fresh=fresh)

    def _find_stored(self, step: Step, key: str) -> Artifact | None:
        hit = self.store.lookup(key, lambda text: self._emit_warning(step, text))
        _LOG.debug("%s is %s the store", step.name, "not in" if hit is None else "in")
        if hit is not None and step.stage.cached:
            self.emit(StageCached(stage=step.name, digest=hit.digest))
        elif hit is not None:
            self.emit(StageSkipped(stage=step.name, reason=explain_skip(step.name)))
        return hit

    def _fetch_remote(self, step: Step, document: Document) -> Artifact | None:
        """Fetch a cached result from the remote; measurements hold only for their machine."""
        if self.remote is None or not step.stage.cached:
            return None
        artifact = self.remote.fetch(document, step.stage.produces)
        if artifact is not None:
            self.emit(StageCached(stage=step.name, digest=artifact.digest, fetched=True))
        return artifact

    def _execute_step(
        self, step: Step, inputs: Mapping[str, Artifact], document: Document, *, fresh: bool
    ) -> Artifact:
        key, start = digest_json(document), time.monotonic()
        self.emit(StageStarted(stage=step.name))
        work = attempt.begin_attempt(self.store, step.name, key, forced=fresh)
        if spent_budget := attempt.describe_spent_budget(work):
            self.emit(StageResumed(stage=step.name, after=spent_budget))
        ctx = Context(
            inputs={name: artifact.path for name, artifact in inputs.items()},
            facts=self.environment.facts(step.stage.reads),
            out=self.store.out(),
            work=work,
            records=find_records(self.store.root),
            emit=self.emit,
            forced=fresh,
            diagnostics=self.diagnostics,
        )
        try:
            summary = self._attempt_stage(step, ctx, key)
            self._check_sources(step, document)
            count = partial(Watch(step.name, self.emit).count_bytes, "MiB stored", passes=2)
            artifact = self.store.commit(key, document, step.stage.produces, ctx.out, count)
        except Exception as error:
            attempt.record_failure(self.store, step.name, key, error)
            raise
        self.store.clear_work(key)
        seconds = time.monotonic() - start
        self.emit(
            StageFinished(stage=step.name, digest=artifact.digest, seconds=seconds, summary=summary)
        )
        if self.remote is not None and step.stage.cached:
            self.remote.offer(key)
        return artifact

    def _attempt_stage(self, step: Step, ctx: Context, key: str) -> str:
        try:
            return self.isolate.run(step.stage, ctx, self.store.log(step.name, key))
        except (Killed, StoreError):  # the next attempt continues from its scratch directory
            raise
        except Exception:
            self.store.clear_work(key)
            raise

    def _check_sources(self, step: Step, document: Document) -> None:
        """Raise StageError if a source file changed while the stage ran."""
        again = build_action(
            step.stage, {}, self.environment.facts(step.stage.reads), self.store.contents
        )
        for name, before in document["sources"].items():
            if again["sources"].get(name) != before:
                path = step.stage.sources()[name]
                raise StageError(f"{path} changed while stage {step.name!r} read it; run it again")

    def _emit_warning(self, step: Step, message: str) -> None:
        self.emit(Warn(stage=step.name, message=message))
