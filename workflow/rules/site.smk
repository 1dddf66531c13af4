# Memory and time from a profile replace those computed from the data set, and double in the same way.
def doubled(what, given, most):
    """Resource function: the profile's value, doubled after each attempt that lacked it, up to `most`."""

    def asked(wildcards, input, attempt, threads, rulename, async_run):
        first = given.evaluate(
            wildcards, input=input, attempt=attempt, threads=threads, rulename=rulename, async_run=async_run
        ).value
        lacking = lacked(what, rulename, wildcards) if isinstance(first, int) else 0
        return max(first, min(most(rulename, wildcards), first << lacking)) if lacking else first

    return asked


def double_what_the_profile_gives():
    """Double the profile's memory and time, except values that define their own growth by Snakemake's `attempt`."""
    grow = {"mem_mb": ("memory", lambda *job: math.inf), "runtime": ("time", longest)}
    for each in workflow.rules:
        given = workflow.resource_settings._parsed_overwrite_resources.get(each.name, {})
        for name in grow.keys() & given.keys():
            if not re.search(r"\battempt\b", str(given[name].raw)):
                what, most = grow[name]
                each.resources.update({name: doubled(what, given[name], most)})


double_what_the_profile_gives()
