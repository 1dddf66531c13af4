# Where sacct has no database behind it, the Slurm plugin would wait for ends of jobs that it never hears of.
def ask_who_answers():
    """Have squeue asked how jobs are where sacct is to be and cannot say; say so in one line."""
    settings = workflow.executor_settings
    if getattr(settings, "status_command", None) != "sacct":
        return
    try:
        command = ["sacct", "--allocations", "--noheader"]
        asked = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER, check=False)
        lack = asked.returncode and asked.stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        lack = str(error)
    if lack:
        settings.status_command = "squeue"
        logger.warning(f"squeue tells how jobs are, because sacct does not: {' '.join(lack.split())}")
