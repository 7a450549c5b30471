#!/bin/sh
# Trains the guide's PyTorch script, byte for byte, with the guide's own commands, on a Switchyard of its own in a temporary folder.
# Needs `switchyard` on PATH (make build) and PyTorch (Debian: apt-get install python3-torch); skipped with a word where that is absent.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if ! python3 -c 'import torch' 2>/dev/null; then
    echo "SKIPPED: python3 has no torch here (Debian: apt-get install python3-torch)"
    exit 0
fi
home=$(mktemp -d)
export SWITCHYARD_CONTEXT="$home/context.json"
# Without CUDA, .cuda() raises: the sitecustomize turns it into a no-op there.
SWITCHYARD_JOB_ENVIRONMENT=PYTHONPATH PYTHONPATH="$here/sitecustomize" switchyard up --data-dir "$home/data" --port 0 --allow-root "$here" --allow-root "$home" 2>"$home/up.log" &
up=$!
trap 'kill $up; wait $up 2>/dev/null || true; rm -rf "$home"' EXIT
until [ -s "$SWITCHYARD_CONTEXT" ]; do
    kill -0 $up 2>/dev/null || { cat "$home/up.log" >&2; exit 1; }
    sleep 0.1
done
switchyard compat install "$home/bin"
PATH="$home/bin:$PATH"
mkdir "$home/snapshots"
run-scheduler --script_path /custom/pytorch.py --custom_dir "$here" --snapshots_dir "$home/snapshots" \
    --batch_size 4 --training_set_size 400 --max_epochs 5 --is_single_gpu True --est_nhours 2 guide
switchyard wait guide --timeout 120s
scheduler-state --extended
job=$(switchyard ps -o json | sed -n 's/.*"id": "\(guide[^"]*\)".*/\1/p' | head -n 1)
scheduler-get-logs "$job"
