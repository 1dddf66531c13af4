# Snakemake puts names unescaped between single quotes in a cluster's job script: spaces, $ and ; are safe there.
def names_in_job_scripts():
    """Yield the names in job scripts, apart from data sets, models and so on, whose names the schema restricts."""
    yield "the working folder", os.getcwd()
    yield "the workflow's folder", workflow.basedir
    yield "results", RESULTS
    yield from (("--configfile", str(file)) for file in workflow.overwrite_configfiles)
    yield from (("--config", word) for word in workflow.config_settings.config_args or ())


def refuse_broken_names():
    """End a cluster run if a quote, backslash or line break in a name would break a script or run as a command."""
    for what, name in names_in_job_scripts():
        if workflow.non_local_exec and re.search(r"['\\]|[^\S ]", str(name)):
            refuse(f"{what}: {str(name)!r}: on a cluster this cannot have single quotes, backslashes or line breaks")
