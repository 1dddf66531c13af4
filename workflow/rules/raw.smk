# What the graph of a data set is made of: files that mgg retrieve fetched, or the user's own.
def raw_files(wildcards):
    """Input function: what mgg retrieve made of a data set; of the user's own files each, so that changes are seen."""
    source = DATASETS[wildcards.dataset].source
    return own.files_of(source) if source else raw_source(wildcards)


def raw_source(wildcards):
    """What mgg graph reads."""
    source = DATASETS[wildcards.dataset].source
    return str(own.path_of(source)) if source else f"{RESULTS}/retrieve/{wildcards.dataset}"


def graph_options(wildcards):
    """The options of mgg graph that need not be there."""
    dataset = DATASETS[wildcards.dataset]
    name = ["--name", wildcards.dataset] if dataset.source else []
    loader = ["--loader", dataset.loader] if dataset.loader else []
    repeats = ["--repeats", dataset.repeats] if dataset.repeats else []
    loops = ["--loops", dataset.loops] if dataset.loops else []
    return name + loader + repeats + loops + flags(symmetrize=dataset.symmetrize, labels=dataset.labels)
