"""A record, and where it was measured."""

from autopipe.records.record import Platform, Record

HERE = Platform('{"kind":"llvm"}', '{"tvm":"0.27"}', '{"cpu":"x"}')
MODULE = '{"root":1}'


def record(seconds=(1.0,), **fields):
    return Record(
        **{
            "workload": "00ff", "engine": "ansor", "implementation": "direct",
            "schedule": "[[],[]]", "seconds": seconds,
            "error": None if seconds else "crashed", "cut": False,
            "measured": "2026-01-01T00:00:00+00:00", "session": "s", **fields,
        }
    )  # fmt: skip
