"""Errors that reach the user as one line and an exit code (docs/guides/errors.md)."""

from typing import Self

#: Start of the message when more host memory would have helped; only then does the workflow request more.
NOT_ENOUGH_MEMORY = "not enough memory"


class MggError(Exception):
    """Base of every error that the command line reports in one line; ``exit_code`` is what the process returns."""

    exit_code = 1
    #: Every PE raises this same error, so only rank 0 prints it and no PE has to be killed.
    everywhere = False

    #: This PE prints the error whatever its rank, because other PEs may not have it.
    alone = False

    def by_itself(self) -> Self:
        """Return this error, marked as specific to this host."""
        self.alone = True
        return self

    def on_every_pe(self) -> Self:
        """Return this error, marked as raised by every PE."""
        self.everywhere = True
        return self


class InputError(MggError):
    """Bad input or usage: the message names the file, line or field and what to do."""

    exit_code = 2


class MachineError(MggError):
    """This machine lacks something: the message says what and how to get it."""

    exit_code = 3


def memory_error(reason: str) -> MachineError:
    """Return the error for too little host memory, on the machine or in the job's limit; not for GPU memory."""
    return MachineError(f"{NOT_ENOUGH_MEMORY}: {reason}")


def gpu_memory_error(error: MemoryError) -> MachineError | None:
    """Return the error for too little GPU memory (CuPy raises a MemoryError), or None if host memory ran out."""
    if type(error).__module__.partition(".")[0] != "cupy":
        return None
    return MachineError(f"not enough GPU memory: {error}: use more PEs, fewer columns or another technique")


class CheckError(MggError):
    """A result differs from its reference, or one report from another, by more than the tolerance."""

    exit_code = 4


class StoppedError(MggError):
    """Stopped on request, with a checkpoint if there was an epoch: run the same command again with ``--resume``."""

    exit_code = 5


class PeError(MggError):
    """A PE died or stalled: the message names it."""

    exit_code = 6
