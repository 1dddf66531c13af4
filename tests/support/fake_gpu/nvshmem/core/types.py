"""What the modules of this stand-in share."""

import os
from types import SimpleNamespace

job = SimpleNamespace(comm=None)


class NvshmemError(Exception):
    pass


def heap():
    """Bytes of the largest symmetric array."""
    return int(os.environ.get("FAKE_HEAP", str(2**30)))
