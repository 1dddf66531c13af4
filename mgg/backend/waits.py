"""Waits that poll: more PEs than cores do not spin each other out, and a limit ends them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

#: Seconds that a wait yields the core between looks; after that it sleeps.
PATIENCE = 2e-3
#: Seconds of sleep between looks.
NAP = 20e-6


def poll(done: Callable[[], bool], look: Callable[[float], None]) -> None:
    """Return once ``done()``.

    Args:
        done: whether what is awaited is there.
        look: called before every sleep with the seconds waited so far; raises to end the wait.
    """
    start = time.monotonic()
    while not done():
        waited = time.monotonic() - start
        if waited < PATIENCE:
            os.sched_yield()
        else:
            look(waited)
            time.sleep(NAP)
