"""What CuPy keeps for each thread, and its error."""

import threading


class _Current(threading.local):
    def __init__(self):
        self.device = 0
        self.streams = []


current = _Current()


class CUDARuntimeError(RuntimeError):
    def __init__(self, message, status=1):
        super().__init__(message)
        self.status = status
