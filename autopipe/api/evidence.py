"""Check gates on a build's tuning by this store's own measurements, not by those of a lock."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from autopipe.artifacts.build_results import read_build_results
from autopipe.artifacts.library import BuiltLibrary
from autopipe.artifacts.tuning import BestRecord, TuningReport, TuningResult
from autopipe.config.gates import Gates
from autopipe.environment.environment import Environment
from autopipe.environment.facet import Facet
from autopipe.errors import AutopipeError, GateError, StoreError
from autopipe.pipeline.events import Emit, Tuned
from autopipe.records.proofs import list_proofs
from autopipe.records.record import Platform
from autopipe.records.store import RecordStore
from autopipe.store.artifact import Artifact
from autopipe.store.store import find_records
from autopipe.tasks.shares import Proof, compute_shares, format_percent_floored

_BUILD: Final = "build"


class Evidence(NamedTuple):
    """Computes the share of a finished build that was measured here, and checks the gates on it."""

    root: Path
    """The root of the store, which may have no tuning records."""
    environment: Environment
    gates: Gates
    emit: Emit

    def __call__(self, stage: str, artifacts: Mapping[str, Artifact]) -> None:
        """Inspect a finished stage's artifacts. Raises GateError for a build below its gates."""
        if stage != _BUILD:
            return
        results = read_build_results(artifacts)
        if results.tuning is None:
            return
        winners = _select_winners(results.library, results.tuning)
        proven = self._list_proofs(winners, results.tuning.report)
        proven_shares = compute_shares(results.tasks, proven)
        unverified_count = len(winners.keys() - proven.keys())
        self.emit(Tuned(stage=stage, claimed=unverified_count, **proven_shares.named()))
        self._require_shares(proven_shares.named(), unverified_count)

    def _list_proofs(
        self, winners: Mapping[str, BestRecord], report: TuningReport
    ) -> dict[str, Proof]:
        """Return this store's measurements of schedules, here or on the report's device.

        By workload.
        """
        records = find_records(self.root)
        try:
            facts = self.environment.facts({Facet.TARGET, Facet.TVM, Facet.DEVICE})
            device = report.device or facts[Facet.DEVICE]
            platform = Platform.of(facts[Facet.TARGET], facts[Facet.TVM], device)
            with RecordStore.view(records) as store:
                return list_proofs(store, platform, winners, report)
        except StoreError:
            if records.exists():
                raise
            return {}
        except AutopipeError:  # there is no such device here, so nothing was measured on it
            return {}

    def _require_shares(self, shares: Mapping[str, float], unverified_count: int) -> None:
        failures = "; ".join(
            f"gates.{name}: {format_percent_floored(shares[word])} of the kept tasks' time was "
            f"{word} by this store, {format_percent_floored(limit)} is required"
            for name, (word, limit) in self.gates.shares().items()
            if shares[word] < limit
        )
        if not failures:
            return
        remedy = "raise tuning.budget or lower the gate"
        if unverified_count:
            winners = f"{unverified_count} winners have unverified times of a lock or a remote"
            remedy = f"{winners}; --force tune measures here"
        raise GateError(f"{failures}; {remedy}")


def _select_winners(library: BuiltLibrary, tuning_result: TuningResult) -> dict[str, BestRecord]:
    """Return the tuning records that a build uses, by workload."""
    used_workloads = {task.workload for task in library.tasks if task.seconds is not None}
    return {
        workload: record
        for workload, record in tuning_result.records.items()
        if workload in used_workloads
    }
