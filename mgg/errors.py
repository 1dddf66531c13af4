"""Errors that reach the user as one line and an exit code (docs/errors.md)."""

from typing import Self

#: How the message begins where more host memory would have helped: the workflow asks for more then, and only then.
NOT_ENOUGH_MEMORY = "not enough memory"


class MggError(Exception):
    """Base of every error that the command line reports in one line; ``exit_code`` is what the process returns."""

    exit_code = 1
    #: Every PE raises this same error: rank 0 alone speaks, and no PE has to be stopped by force.
    everywhere = False

    #: This PE speaks, whatever its rank: others may not know.
    alone = False

    def by_itself(self) -> Self:
        """This error, marked as one of a host, which other hosts may not have."""
        self.alone = True
        return self

    def on_every_pe(self) -> Self:
        """This error, marked as one that every PE raises."""
        self.everywhere = True
        return self


class InputError(MggError):
    """Bad input or usage: the message names the file, line or field and what to do."""

    exit_code = 2


class MachineError(MggError):
    """This machine lacks something: the message says what and how to get it."""

    exit_code = 3


def memory_error(told: str) -> MachineError:
    """The error where this host has too little memory, or the job may have too little of it; not for that of GPUs."""
    return MachineError(f"{NOT_ENOUGH_MEMORY}: {told}")


def gpu_memory_error(error: MemoryError) -> MachineError | None:
    """The error where a GPU had too little memory (CuPy's own is a MemoryError, too); None where the host had."""
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
