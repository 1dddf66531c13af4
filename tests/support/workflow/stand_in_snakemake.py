"""Snakemake's command line with short pauses, for stand-ins for Slurm, whose jobs are done at once.

Snakemake and its plugin poll every second or every 40 seconds, and the workflow gives Slurm seconds to answer.
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
