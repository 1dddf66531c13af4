"""Snakemake's command line towards stand-ins for Slurm, which have done a job when they answer: no pause takes long.

Snakemake and its plugin look every second or every 40, and the workflow gives Slurm seconds to answer.
"""

import asyncio
import sys
import time

PAUSE = 0.1


def _shortened(sleep):
    return lambda seconds, *rest: sleep(min(seconds, PAUSE), *rest)


if __name__ == "__main__":
    time.sleep, asyncio.sleep = _shortened(time.sleep), _shortened(asyncio.sleep)
    from snakemake.cli import main

    sys.exit(main())
