"""A peer that holds the farm's certificate and breaks the protocol.

`python -m tests.farm.rogue SCHEDULER FOLDER LABEL WAY` joins as a worker of equal machines, and
does one of `WAYS` for each order, again and again; it prints its name once it works.
"""

import asyncio
import json
import sys
from contextlib import suppress

from websockets.exceptions import ConnectionClosed

from autopipe.farm import channel
from tests.farm import sleeping

GIGABYTE = 1 << 30


async def send_gigabyte(connection, _):
    """Begin a message of a gigabyte, in one piece."""
    header = b"\x81\xff" + GIGABYTE.to_bytes(8) + bytes(4)  # a final text, masked by zeros
    connection.transport.write(header + b"x" * (1 << 20))
    await connection.wait_closed()


async def send_fragments(connection, _):
    """Send a message that has no end, a MiB at a time."""

    async def pieces():
        while True:
            yield "x" * (1 << 20)

    await connection.send(pieces())


async def send_rubbish(connection, _):
    """Send bytes that are no message."""
    await connection.send(b"\x80\x05cos\nsystem\n.")


async def answer_others(connection, order):
    """Answer an order that somebody else has."""
    await connection.send(channel.encode_message({"answer": order["order"] + 1000, "text": "{}"}))


async def stay_silent(connection, _):
    """Take orders, answer pings, and nothing else."""


WAYS = {
    "gigabyte": send_gigabyte, "fragments": send_fragments, "rubbish": send_rubbish,
    "others": answer_others, "silent": stay_silent,
}  # fmt: skip


async def main(address, folder, label, way):
    hello = {
        "protocol": channel.PROTOCOL, "role": "worker", "name": f"rogue-{way}", "label": label,
        "facts": sleeping.FACTS, "slots": 4,
    }  # fmt: skip
    while True:
        with suppress(ConnectionClosed, OSError):
            connection = await channel.connect(address, folder, 10.0, 10.0)
            await connection.send(json.dumps(hello))
            if "welcome" in await channel.receive(connection):
                sys.stdout.write(f"rogue-{way} works for {address}\n")
                sys.stdout.flush()
                while True:
                    await WAYS[way](connection, await channel.receive(connection))
        await asyncio.sleep(0.2)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
