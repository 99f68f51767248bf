"""`autopipe scheduler` and `autopipe worker` with a bench that is none, and less patience.

`$AUTOPIPE_TEST_BENCH` names the module of the bench; one that sleeps if it names none. `real` is
autopipe's own, with all of its patience.
"""

import os
from unittest.mock import patch

from autopipe.cli.app import main
from autopipe.farm import channel, exchange, scheduler, workbench

if os.environ.get("AUTOPIPE_TEST_BENCH") == "real":
    main()
    raise SystemExit
with (
    patch.object(workbench, "BENCH", os.environ.get("AUTOPIPE_TEST_BENCH", "tests.farm.sleeping")),
    patch.object(workbench, "_GRACE", 2.0),
    patch.object(channel, "MESSAGE", 1 << 22),
    patch.object(channel, "SILENCE", 3.0),
    patch.object(channel, "HANDSHAKE", 5.0),
    patch.object(exchange, "PATIENCE", 3.0),
    patch.object(scheduler, "_LOOK", 0.5),
):
    main()
