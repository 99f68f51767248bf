"""`autopipe scheduler` and `autopipe worker` with a sleeping bench, and less patience."""

from autopipe.cli.app import main
from autopipe.farm import settings, workbench

workbench.BENCH = "tests.farm.sleeping"
workbench._GRACE = 2.0
settings.SETTINGS = {**settings.SETTINGS, "distributed.scheduler.worker-ttl": "3s"}

main()
