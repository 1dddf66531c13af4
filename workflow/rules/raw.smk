# Sources of a data set's graph: files that mgg retrieve fetched, or the user's own.
def raw_files(wildcards):
    """Input function: the output of mgg retrieve, or each of the user's own files, whose contents name the graph."""
    source = DATASETS[wildcards.dataset].source
    return ancient(user_files.files_of(source)) if source else raw_source(wildcards)


def raw_source(wildcards):
    """Return the path that mgg graph reads."""
    source = DATASETS[wildcards.dataset].source
    return str(user_files.path_of(source)) if source else f"{RESULTS}/retrieve/{wildcards.dataset}"


def graph_options(wildcards):
    """Return the optional arguments of mgg graph."""
    dataset = DATASETS[wildcards.dataset]
    name = ["--name", wildcards.dataset] if dataset.source else []
    loader = ["--loader", dataset.loader] if dataset.loader else []
    assigned = [
        f"{role}={each}"
        for role, names in dataset.column.items()
        for each in ([names] if isinstance(names, str) else names)
    ]
    columns = [word for each in assigned for word in ("--column", each)]
    columns += ["--columns", ",".join(dataset.columns)] if dataset.columns else []
    repeats = ["--repeats", dataset.repeats] if dataset.repeats else []
    loops = ["--loops", dataset.loops] if dataset.loops else []
    return name + loader + columns + repeats + loops + flags(symmetrize=dataset.symmetrize, labels=dataset.labels)
