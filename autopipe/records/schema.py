"""The tables of the record store."""

from typing import Final

TABLES: Final = """
CREATE TABLE IF NOT EXISTS workloads (
    id INTEGER PRIMARY KEY,
    hash TEXT NOT NULL,
    module TEXT NOT NULL,
    UNIQUE (hash, module)
) STRICT;
CREATE TABLE IF NOT EXISTS records (
    id INTEGER PRIMARY KEY,
    workload INTEGER NOT NULL REFERENCES workloads,
    target TEXT NOT NULL,
    versions TEXT NOT NULL,
    device TEXT NOT NULL,
    engine TEXT NOT NULL,
    implementation TEXT NOT NULL,
    schedule TEXT NOT NULL,
    seconds TEXT NOT NULL,
    error TEXT,
    cut INTEGER NOT NULL,
    measured TEXT NOT NULL,
    session TEXT NOT NULL,
    checksum TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS wrong (
    record INTEGER PRIMARY KEY REFERENCES records,
    reason TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS by_workload ON records (workload, target, versions, device);
CREATE INDEX IF NOT EXISTS by_session ON records (session);
"""
"""A workload is its hash and its module together: a hash of 64 bits alone could mix two up."""

COLUMNS: Final = (
    "engine", "implementation", "schedule", "seconds", "error", "cut", "measured", "session",
)  # fmt: skip
"""Columns of `records` that are fields of a record under the same name."""
