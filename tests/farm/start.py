"""`autopipe scheduler` and `autopipe worker` with a bench that is none, and less patience.

`$AUTOPIPE_TEST_BENCH` names the module of the bench; one that sleeps if it names none. `real` is
autopipe's own, with all of its patience.
"""

import os
from functools import partial
from unittest.mock import patch

from autopipe.cli.app import main
from autopipe.farm import bounds, settings, workbench

if os.environ.get("AUTOPIPE_TEST_BENCH") == "real":
    main()
    raise SystemExit
with (
    patch.object(workbench, "BENCH", os.environ.get("AUTOPIPE_TEST_BENCH", "tests.farm.sleeping")),
    patch.object(workbench, "_GRACE", 2.0),
    patch.object(settings, "bound", partial(bounds.bound, 1 << 22)),
    patch.dict(settings.SETTINGS, {"distributed.scheduler.worker-ttl": "3s"}),
):
    main()
