"""The program of the child of `infer`."""

import gc

gc.set_threshold(100_000)  # imported modules stay: to search them takes 15 ms of the imports

from autopipe.packaging.infer_child import answer_request  # noqa: E402 -- after the above
from autopipe.processes import call  # noqa: E402

if __name__ == "__main__":
    call.serve_request(answer_request)
