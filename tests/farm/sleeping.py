"""A bench that sleeps as a real one waits: builds together, then each time alone.

The schedule of a candidate says for how long: `{"build": 0.1, "run": 0.05, "time": 1e-3}`.
`$AUTOPIPE_TEST_FACTS` changes what the machine says of itself, `$AUTOPIPE_TEST_SAYS` its answers:
`rubbish`, `lies` about its device, or `impossible` times; `counts` says how many it has given;
`hangs` says nothing any more.
"""

import json
import os
import sys
import time
from itertools import count

from autopipe.farm.facts import find_autopipe_version, fingerprint_device
from autopipe.farm.wire import WorkAnswer, WorkOrder
from autopipe.measure.measurement import Measurement
from autopipe.processes import failure
from autopipe.processes.link import wait_for_readable
from autopipe.processes.start import open_parent_link

ANSWERS = count(1)

FACTS: dict[str, dict[str, object]] = {
    "versions": {"autopipe": find_autopipe_version(), "tvm": "0.27"},
    "device": {"cpu": "a sleeper", "cores": 2},
    "processor": {"mcpu": "znver5", "mtriple": "x86_64-linux-gnu", "lacks": ""},
    "caches": {"l1": 32768},
}


def main():
    link = open_parent_link()
    said = json.loads(os.environ.get("AUTOPIPE_TEST_FACTS", "{}"))
    facts = {name: {**part, **said.get(name, {})} for name, part in FACTS.items()}
    link.write(failure.encode_answer(facts))
    cores = int(str(facts["device"]["cores"]))
    orders: list[tuple[int, WorkOrder]] = []
    while True:
        lines = [] if orders else [link.receive()]
        lines += link.received() if wait_for_readable([link], 0.0) else []
        orders += [(number, WorkOrder.read(text)) for number, text in map(json.loads, lines)]
        batch(link, orders[:cores], fingerprint_device(facts))
        orders = orders[cores:]


def batch(link, orders, device):
    wanted = [json.loads(order.candidates[0].schedule) for _, order in orders]
    time.sleep(max(each.get("build", 0.0) for each in wanted))
    for (number, order), each in zip(orders, wanted, strict=True):
        time.sleep(each.get("run", 0.0))
        link.send([number, answer(order, each, device)])


def answer(order, wanted, device):
    found = tuple(Measurement((wanted.get("time", 1e-3),)) for _ in order.candidates)
    match os.environ.get("AUTOPIPE_TEST_SAYS"):
        case "rubbish":
            return '{"measurements": [{"seconds": "soon"}]}'
        case "lies":
            return WorkAnswer("another device", found).text()
        case "impossible":
            return WorkAnswer(device, (Measurement((-1.0,)),)).text()
        case "counts":
            return WorkAnswer(device, (Measurement((1e-3 * next(ANSWERS),)),)).text()
        case "hangs":
            time.sleep(1000)
    return WorkAnswer(device, found).text()


if __name__ == "__main__":
    try:
        main()
    except EOFError:
        sys.exit()
