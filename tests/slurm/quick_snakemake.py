"""Snakemake's command line, asking for its jobs every half second; by itself the plugin waits 40 seconds and more."""

import asyncio
import sys

import snakemake_executor_plugin_slurm as plugin
from snakemake.cli import main
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor


async def _pause(self):
    await asyncio.sleep(0.5)


RemoteExecutor.sleep = _pause
# MinJobAge of the test's cluster. The plugin asks scontrol for it, and where that takes 10 seconds on a busy machine it
# goes over to sacct for good, which has nothing to answer from here.
plugin.get_min_job_age = lambda: 3600
sys.exit(main())
