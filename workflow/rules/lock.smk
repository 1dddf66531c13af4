# One live run in a results folder, which removes what killed ones left half-written, on whatever node. Snakemake's own
# lock outlives a killed run, so the profiles switch it off.
import fcntl
import socket

from mgg.files import remove_leftovers


def claim(folder):
    """Hold FOLDER/.lock until this process ends, however it ends; refuse if another process holds it.

    A POSIX record lock belongs to this process alone: no child inherits it, and the system drops it with the process.
    """
    path = Path(folder, ".lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a+", encoding="utf-8")
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        file.seek(0)
        holder = file.read().strip() or "unknown process"
        refuse(f"{folder}: another run is working here ({holder}); wait for it or end it, then run this again")
    except OSError as error:
        logger.warning(f"{path}: this file system has no locks ({error.strerror}): start one run at a time")
        return file
    remove_leftovers(folder)
    file.truncate(0)
    file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
    file.flush()
    return file


# Kept here because closing the file would release the lock.
HELD = []


# Not in dry runs, --lint, --report or the processes that snakemake starts for jobs.
onstart:
    refuse_broken_names()
    HELD.append(claim(RESULTS))
