#!/bin/sh
# Workers of a farm on machines of a list: SCHEDULER=tls://host:8786 ssh.sh zen5 host1 host2 ...
# Each goes on when this ends; `ssh HOST pkill -TERM -f 'autopipe worker'` ends one.
: "${SCHEDULER:?set it to tls://host:8786}"
label=$1
shift
for host; do
    ssh "$host" "mkdir -p -m 700 .config/autopipe/certificates" || exit
    scp -pq "${CERTIFICATES:-$HOME/.config/autopipe/certificates}"/* \
        "$host:.config/autopipe/certificates/" || exit
    # shellcheck disable=SC2029 -- these are to be known there
    ssh "$host" "nohup ${ENVIRONMENT:-autopipe/.venv}/bin/autopipe worker \
        --scheduler $SCHEDULER --label $label >autopipe-worker.log 2>&1 </dev/null &"
done
