#!/bin/sh
# Workers of a farm on Slurm, one a node: sbatch --array=1-20 slurm.sh
#SBATCH --job-name=autopipe-worker
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --exclusive
#SBATCH --requeue
#SBATCH --constraint=zen5
#SBATCH --signal=B:TERM@30
# A node that was lost is queued again by Slurm; what the worker had in its hands, others do.
: "${SCHEDULER:?set it to tls://host:8786}"
. "${ENVIRONMENT:-$HOME/autopipe/.venv}/bin/activate"
exec autopipe worker --scheduler "$SCHEDULER" --label "${LABEL:-zen5}" \
    --certificates "${CERTIFICATES:-$HOME/.config/autopipe/certificates}"
