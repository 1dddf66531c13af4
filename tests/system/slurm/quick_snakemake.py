"""Snakemake's command line, asking for its jobs every half second; by itself the plugin waits 40 seconds and more."""

import asyncio
import sys

from snakemake.cli import main
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor


async def _pause(self):
    await asyncio.sleep(0.5)


RemoteExecutor.sleep = _pause
sys.exit(main())
