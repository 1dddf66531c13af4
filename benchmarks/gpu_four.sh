#!/usr/bin/env bash
# All runs on the GPUs of one host: bash benchmarks/gpu_four.sh OUT (options: --help). $PYTHON is the Python, or python3.
here=$(cd "$(dirname "$0")" && pwd)
PYTHONPATH=${here%/*}${PYTHONPATH:+:$PYTHONPATH} exec "${PYTHON:-python3}" "$here/gpu_four.py" "$@"
