"""`autopipe scheduler` and `autopipe worker` with a sleeping bench, and less patience."""

from unittest.mock import patch

from autopipe.cli.app import main
from autopipe.farm import settings, workbench

with (
    patch.object(workbench, "BENCH", "tests.farm.sleeping"),
    patch.object(workbench, "_GRACE", 2.0),
    patch.dict(settings.SETTINGS, {"distributed.scheduler.worker-ttl": "3s"}),
):
    main()
