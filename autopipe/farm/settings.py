"""How Dask is set up for trials; its defaults are for other work."""

import logging
from collections.abc import Mapping
from typing import Any, Final

from autopipe.errors import SetupError
from autopipe.farm.bounds import bound
from autopipe.farm.certificates import INSTALL, security
from autopipe.farm.pickles import CLOSED, restrict

FROZEN: Final = 20
"""Seconds without a word after which a worker counts as gone."""

SETTINGS: Final[Mapping[str, Any]] = {
    "distributed.scheduler.allowed-failures": 0,  # whoever asked decides what is tried once more
    "distributed.scheduler.worker-ttl": f"{FROZEN}s",
    "distributed.scheduler.blocked-handlers": sorted(CLOSED),
    "distributed.worker.blocked-handlers": sorted(CLOSED),
    "distributed.scheduler.http.routes": [],  # they answer anybody who asks
    "distributed.scheduler.default-data-size": "1kiB",
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.worker.http.routes": [],
    "distributed.worker.profile.enabled": False,  # it looks at all threads every 10 ms
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.tick.limit": "30s",
    "distributed.comm.compression": False,
    "distributed.comm.timeouts.connect": "10s",
    "distributed.comm.timeouts.tcp": f"{FROZEN}s",
}


def speaking(address: str, certificates: str | None) -> dict[str, Any]:
    """Set Dask up in this process; return how it speaks to an address.

    Raises SetupError where Dask is not installed, or a certificate is missing.
    """
    try:
        import dask
        import distributed  # noqa: F401 -- its defaults come first
    except ImportError:
        raise SetupError(f"Dask is not installed; {INSTALL}") from None
    restrict()  # after Dask is imported, which reads pickles of its own then
    bound()
    dask.config.set(SETTINGS)
    logging.getLogger("distributed").setLevel(logging.ERROR)  # we say ourselves what matters
    return {"security": security(certificates)} if address.startswith("tls://") else {}
