"""What the modules of this stand-in share."""

import os
from types import SimpleNamespace

job = SimpleNamespace(comm=None)


def host(pe):
    """The host that a PE is on: PEs in a row share one."""
    return pe // int(os.environ.get("FAKE_PES_A_HOST", "1000"))


class NvshmemError(Exception):
    pass


def heap():
    """Bytes of the largest symmetric array."""
    return int(os.environ.get("FAKE_HEAP", str(2**30)))
