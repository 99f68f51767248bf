"""Dask's client, which also keeps what the scheduler says of who has done a trial.

Only for processes that have loaded Dask already: `settings.speaking` comes first.
"""

from typing import Any

from distributed import Client

from autopipe.farm.bounds import DOERS


class FarmClient(Client):  # type: ignore[misc]  # distributed has no types
    """Asks a scheduler for trials; `doers` has the names of workers by what they have done."""

    def __init__(self, *arguments: Any, **named: Any) -> None:  # noqa: ANN401 -- Dask's
        """Take what Dask's client takes."""
        self.doers: dict[str, str] = {}
        super().__init__(*arguments, **named)

    async def _gather_remote(self, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 -- Dask's
        found = await super()._gather_remote(*arguments, **named)
        self.doers.update(found.get(DOERS, {}))
        return found
