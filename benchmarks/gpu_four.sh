#!/usr/bin/env bash
# All runs on the GPUs of one host: bash benchmarks/gpu_four.sh OUT (options: --help). $PYTHON is the Python, or python3.
exec "${PYTHON:-python3}" "$(dirname "$0")/gpu_four.py" "$@"
