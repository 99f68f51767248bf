#!/bin/sh
# Builds a pipeline in CI as its lock says, and leaves the package and the reports in a folder.
#
#     build.sh PIPELINE.yaml OUTPUT [BASE.lock]
#
# BASE.lock is the lock of the branch that a change goes to; with it, the summary says what changed.
# The exit code is that of `autopipe run`; whatever it is, the reports are there.
set -u

if [ $# -lt 2 ]; then
    echo "usage: $0 PIPELINE.yaml OUTPUT [BASE.lock]" >&2
    exit 2
fi
pipeline=$1
output=$2
base=${3-}

rm -f "$output"/*.tar  # of an earlier build; a failed one leaves none
code=0
autopipe run "$pipeline" --frozen --output "$output" \
    --report "$output/report.json" \
    --report "$output/junit.xml" \
    --report "$output/summary.md" || code=$?

if [ -s "$base" ]; then
    { echo && autopipe diff "$base" "${pipeline%.*}.lock" --format markdown; } \
        >>"$output/summary.md" || echo "note: $base can not be compared" >&2
fi

case $code in
    0) ;;
    1) echo "a check said no: see $output/summary.md" >&2 ;;
    2 | 3) echo "the pipeline file, the model or the target is wrong: fix it" >&2 ;;
    6) echo "the lock is not current: autopipe run $pipeline, and check in what it writes" >&2 ;;
    4 | 5) echo "a stage or this machine failed: see $output/summary.md; a retry may help" >&2 ;;
    *) echo "ended with exit code $code" >&2 ;;
esac
exit "$code"
