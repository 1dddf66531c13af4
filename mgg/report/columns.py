"""The columns of every table of the report: name, type, unit, meaning (docs/tables.md says the same)."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

TYPES = {"text": pa.string(), "integer": pa.int64(), "number": pa.float64(), "yes/no": pa.bool_()}


class Column(NamedTuple):
    """One column; ``kind`` is a key of TYPES, ``unit`` is "" for text, counts and ratios."""

    name: str
    kind: str
    unit: str
    meaning: str


def schema(table: str) -> pa.Schema:
    """The Arrow schema of a table; its metadata say which table and version, those of a column unit and meaning."""
    return pa.schema(
        (pa.field(c.name, TYPES[c.kind], metadata={"unit": c.unit, "description": c.meaning}) for c in TABLES[table]),
        metadata={"mgg.table": table, "mgg.schema_version": str(SCHEMA_VERSION), "description": ABOUT[table]},
    )


_MACHINE = Column("machine", "text", "", "machine, software and place, as named in table machines")
_GRAPH = [
    Column("dataset", "text", "", "name of the graph"),
    Column("graph_hash", "text", "", "hash of the graph's shards: equal hashes, equal graphs"),
]
_BACKEND = Column("backend", "text", "", "what carried the PEs: simulated (threads), mpi (processes), nvshmem (GPUs)")
_DEVICE = Column("device", "text", "", "what computed: GPUs, CPU ranks (mpi) or CPU threads (simulated)")
_SCHEME = Column("scheme", "text", "", "partition scheme")
_RUN_SCHEME = Column("scheme", "text", "", "partition scheme; empty: not noted")
_DIRECTION = Column("direction", "text", "", "forward: A B; transpose: A^T B")
_DTYPE = Column("dtype", "text", "", "type of the embeddings")
_DIM = Column("dim", "integer", "columns", "D, embedding columns")
_PES = Column("pes", "integer", "", "number of PEs")
_LABEL = Column("label", "text", "", "technique as the page calls it, with the options that tell it from its namesakes")
_TECHNIQUE = [
    Column("technique", "text", "", "aggregation technique"),
    _LABEL,
    Column("options", "text", "", "options of the technique, JSON with sorted keys"),
]
_OVERSUBSCRIBED = Column(
    "oversubscribed", "yes/no", "", "more PEs than cores (or GPUs, where there are any): not a measure of scaling"
)
_SETTING = [_MACHINE, *_GRAPH, _DEVICE, _SCHEME, _DIRECTION, _DTYPE]
_MODEL = [
    Column("model", "text", "", "model"),
    Column("model_label", "text", "", "model as the page calls it, with the settings that tell it from its namesakes"),
    Column("settings", "text", "", "hyperparameters, JSON with sorted keys"),
]

_GPU_MEMORY = Column(
    "gpu_memory",
    "integer",
    "bytes",
    "most that was held of a GPU's memory, PE with the most; empty: CPUs, or not noted",
)
_STAGE = Column("stage", "text", "", "stage of the workflow")
_RULE = Column("rule", "text", "", "rule of the workflow")
_METRIC = Column("metric", "text", "", "what the columns called accuracy hold: accuracy, micro_f1 or roc_auc")
_PHASES = [
    Column(
        "aggregate",
        "number",
        "seconds",
        "of an epoch in aggregations, mean of PEs, median of epochs; empty: no --phases",
    ),
    Column("dense", "number", "seconds", "the same in products with weights"),
    Column("communication", "number", "seconds", "the same in transfers and waits, on GPUs but those of aggregations"),
    Column("other", "number", "seconds", "the same in everything else"),
]

#: Of the tables: it grows where a column goes, or gets another meaning.
SCHEMA_VERSION = 3

#: What every table ends with: where a row's record comes from, or all those that it is made of.
ORIGIN = [
    Column("run_id", "text", "", "run that made the record, of a command or workflow; several: with commas between"),
    Column("recorded_at", "text", "", "when the record was made, UTC; of several the latest"),
    Column("mgg_version", "text", "", "version of MGG"),
    Column("commit", "text", "", "commit of MGG's sources, -dirty where they were changed; empty: nothing told it"),
    Column(
        "config_hash", "text", "", "sha256 of the settings: of the workflow's config, else of the command's options"
    ),
    Column(
        "machine_id", "text", "", "hash of a host's processor, cores, memory and GPU models: the same in every report"
    ),
]

_TABLES: dict[str, list[Column]] = {
    "machines": [
        Column("machine", "text", "", "name of this machine, software and place in this report: M1, M2 ..."),
        Column("cpu", "text", "", "processor model"),
        Column("cores_min", "integer", "", "cores that a job might use, the smallest of all jobs"),
        Column("cores_max", "integer", "", "cores that a job might use, the largest of all jobs"),
        Column("memory", "integer", "GiB", "physical memory of the host, rounded"),
        Column("gpus", "text", "", "GPU models, with the most GPUs of one job; empty: none"),
        Column("system", "text", "", "operating system and kernel"),
        Column("place", "text", "", "how the workflow started its jobs: scheduler, devices, launcher; empty: by hand"),
        Column("versions", "text", "", "versions of MGG and of the libraries that do the work"),
        Column("backends", "text", "", "backends used"),
        Column("timings", "integer", "", "rows of table aggregate"),
        Column("runs", "integer", "", "rows of table training"),
    ],
    "graphs": [
        *_GRAPH,
        Column("nodes", "integer", "", "number of nodes"),
        Column("arcs", "integer", "", "stored arcs; a symmetric edge counts twice"),
        Column("arcs_per_node", "number", "", "arcs over nodes"),
    ],
    "partitions": [
        *_GRAPH,
        _SCHEME,
        _DIRECTION,
        _PES,
        Column("imbalance", "number", "", "arcs of the fullest PE over the mean; 1 is even"),
        Column("edge_cut", "integer", "arcs", "arcs whose column another PE owns"),
        Column("edge_cut_share", "number", "", "edge_cut over all arcs, 0 to 1"),
        Column("halo_rows", "integer", "rows", "remote rows that a PE needs, each once, summed over PEs"),
    ],
    "quality": [
        *_GRAPH,
        _SCHEME,
        _PES,
        Column("workgroup", "integer", "", "G, PEs joined by fast links; the last workgroup may have fewer"),
        _DIM,
        Column("imbalance", "number", "", "arcs of the fullest PE over the mean; 1 is even"),
        Column("workgroup_imbalance", "number", "", "the same for workgroups: arcs a PE of the fullest over the mean"),
        Column("edge_cut", "integer", "arcs", "arcs whose column another PE owns"),
        Column("edge_cut_share", "number", "", "edge_cut over all arcs, 0 to 1"),
        Column("workgroup_edge_cut", "integer", "arcs", "arcs whose column another workgroup owns"),
        Column("halo_rows", "integer", "rows", "remote rows that a PE needs, each once, summed over PEs"),
        Column("halo_rows_max", "integer", "rows", "the same of the PE that needs the most"),
        Column("v_cg", "integer", "bytes", "CoLa eq. 5: every PE broadcasts all of its rows"),
        Column("v_fr", "integer", "bytes", "CoLa eq. 6: one remote row an arc"),
        Column("v_fc", "integer", "bytes", "CoLa eq. 7: each needed remote row once a PE"),
        Column("redundant_cg", "number", "", "share of v_cg beyond v_fc, 0 to 1; empty: nothing moves (CoLa table 2)"),
        Column("redundant_fr", "number", "", "share of v_fr beyond v_fc, 0 to 1; empty: nothing moves (CoLa table 2)"),
        Column("vi_cg", "integer", "bytes", "part of v_cg between workgroups: 4 n D (P - G) where G divides P"),
        Column("vi_fr", "integer", "bytes", "part of v_fr between workgroups (CoLa table 3)"),
        Column("vi_fc", "integer", "bytes", "part of v_fc between workgroups (CoLa table 3)"),
        Column("vi_cola", "integer", "bytes", "each row once a workgroup that needs it: CoLa 4.2 and table 3"),
        Column("span", "number", "", "averaged edge span, GNNAdvisor 5.1: mean of |row - column|; empty: not noted"),
    ],
    "halos": [
        *_GRAPH,
        _SCHEME,
        _PES,
        Column("pe", "integer", "", "the PE that needs rows"),
        Column("owner", "integer", "", "the PE that owns them"),
        Column("rows", "integer", "rows", "rows of owner that pe needs, each once"),
    ],
    "aggregate": [
        *_SETTING,
        _BACKEND,
        _DIM,
        _PES,
        *_TECHNIQUE,
        Column("defaults", "text", "", "options that the technique has by default, JSON with sorted keys"),
        Column("launches", "integer", "", "launches, each on a plan prepared anew"),
        Column("warmup", "integer", "", "products of a launch before the timed ones"),
        Column("iterations", "integer", "", "timed products, all launches together"),
        Column(
            "low", "number", "seconds", "time of the fastest launch: the median of its products, slowest PE of each"
        ),
        Column("median", "number", "seconds", "median of the times of the launches"),
        Column("high", "number", "seconds", "time of the slowest launch"),
        Column("q1", "number", "seconds", "first quartile of the time of a product, all launches together"),
        Column("q3", "number", "seconds", "third quartile of the same"),
        Column("compute", "number", "seconds", "median product of a launch without its transfers; empty: not measured"),
        Column("transfer", "number", "seconds", "median of the transfers of a launch alone; empty: not measured"),
        Column("hidden", "number", "", "median over the larger of compute and transfer; empty: one was not measured"),
        Column("fastest", "yes/no", "", "smallest median of its comparison; no where nothing was compared"),
        Column("close", "yes/no", "", "launches overlap those of the fastest, or of the fastest those of another"),
        Column("starred", "yes/no", "", "called the fastest: its slowest launch was faster than any of the others'"),
        Column("speedup", "number", "", "best 1-PE median of any technique, same setting and D, over this median"),
        Column("efficiency", "number", "", "speedup over PEs; 1 is ideal"),
        _OVERSUBSCRIBED,
        Column("bytes_wire", "integer", "bytes", "counted where they crossed PEs in one product, summed over PEs"),
        Column("bytes_pe_max", "integer", "bytes", "the same for the PE that got the most"),
        _GPU_MEMORY,
        Column("v_cg", "integer", "bytes", "CoLa eq. 5: every PE broadcasts all of its rows"),
        Column("v_fr", "integer", "bytes", "CoLa eq. 6: one remote row an arc"),
        Column("v_fc", "integer", "bytes", "CoLa eq. 7: each needed remote row once a PE"),
        Column("equals", "text", "", "the volumes that bytes_wire equals exactly; empty: none, or 1 PE"),
        Column("error", "number", "", "max |C - C*| / (|A| |B|) against float64; empty: not checked"),
        Column("tolerance", "number", "", "largest error allowed"),
        Column("check", "text", "", "passed, failed, or not checked"),
        Column("chosen", "yes/no", "", "technique auto picked it"),
        Column("predicted", "number", "seconds", "what the cost model said before; empty: it was not asked"),
        Column("workgroup", "integer", "", "PEs of a workgroup; empty: the technique has none, or it was not noted"),
        Column(
            "bytes_between",
            "integer",
            "bytes",
            "of bytes_wire what crossed between workgroups, counted; empty: one workgroup, or not noted",
        ),
        Column(
            "vi_fc", "integer", "bytes", "CoLa 4.1: each row once a PE of another workgroup; empty: one, or not noted"
        ),
        Column(
            "vi_cola", "integer", "bytes", "CoLa 4.2: each row once a workgroup that needs it; empty: one, or not noted"
        ),
        Column("repeats", "yes/no", "", "the same inputs give the same bits on every run; empty: not noted"),
        Column(
            "atomics", "integer", "floats", "atomic additions that gnnadvisor's kernel issues; empty: another technique"
        ),
        Column("decided", "text", "", "ngs, dw and tpb that gnnadvisor took, JSON; empty: another technique"),
    ],
    "fastest": [
        *_SETTING,
        _DIM,
        _PES,
        _LABEL,
        Column("median", "number", "seconds", "median time of one product of the fastest technique"),
        Column("compared", "integer", "", "techniques compared, with a check that did not fail"),
        Column("runner_up", "text", "", "label of the next technique"),
        Column("ratio", "number", "", "median of the next technique over that of the fastest"),
        Column("close", "yes/no", "", "too close to call: its launches overlap those of another technique"),
        Column("unstarred", "text", "", "why it is not called the fastest; empty: it is"),
        _OVERSUBSCRIBED,
    ],
    "choices": [
        *_SETTING,
        _DIM,
        _PES,
        Column("pick", "text", "", "label of the technique that auto picked"),
        Column("median", "number", "seconds", "its median"),
        Column("predicted", "number", "seconds", "what the cost model said of it"),
        Column("best", "text", "", "label of the fastest technique measured"),
        Column("best_median", "number", "seconds", "its median"),
        Column("ratio", "number", "", "median of the pick over that of the fastest; 1: auto picked it"),
        Column("close", "yes/no", "", "the launches of the two overlap: too close to call"),
        Column("compared", "integer", "", "techniques compared, with a check that did not fail"),
        _OVERSUBSCRIBED,
    ],
    "predictions": [
        *_GRAPH,
        _SCHEME,
        Column("model_machine", "text", "", "machine that the cost model predicts for"),
        Column("basis", "text", "", "where its constants are from: measured, fitted, or not measured"),
        Column("network", "text", "", "class of the link between workgroups"),
        _DTYPE,
        _DIM,
        _PES,
        Column("workgroup", "integer", "", "PEs joined by fast links"),
        Column("technique", "text", "", "aggregation technique"),
        Column("options", "text", "", "its options that are not at their defaults, JSON with sorted keys"),
        Column("seconds", "number", "seconds", "predicted time of one forward product, slowest PE; nothing ran"),
        Column("arithmetic", "number", "seconds", "of that PE's arithmetic"),
        Column("transfer", "number", "seconds", "of its transfers"),
        Column("fixed", "number", "seconds", "of barriers and launches"),
        Column("hidden", "number", "seconds", "of the shorter of both, beside the longer one"),
        Column("chosen", "yes/no", "", "what auto would pick"),
        Column("links", "text", "", "the machine's links: seconds, and bytes a second and PE; JSON with sorted keys"),
    ],
    "latencies": [
        _MACHINE,
        _DEVICE,
        _BACKEND,
        _PES,
        Column("link", "text", "", "class of the link: nvlink, shared_memory, mpi, or network (GPUs of several hosts)"),
        Column("grain", "text", "", "fine: a request a row; coarse: one transfer of all bytes"),
        Column("bytes", "integer", "bytes", "that each PE moves, all at once"),
        Column("row_bytes", "integer", "bytes", "of a row"),
        Column("transfers", "integer", "", "transfers that were timed"),
        Column("low", "number", "seconds", "the fastest of them, slowest PE"),
        Column("median", "number", "seconds", "their median"),
        Column("high", "number", "seconds", "the slowest"),
        _OVERSUBSCRIBED,
    ],
    "lookups": [
        _MACHINE,
        Column("dataset", "text", "", "name of the samples"),
        Column("samples_hash", "text", "", "hash of their manifest: equal hashes, equal samples"),
        _BACKEND,
        _DEVICE,
        Column("source", "text", "", "where the samples come from"),
        Column("side", "text", "", "how rows were looked up"),
        Column("split", "text", "", "rows: each table is split by rows; tables: whole tables are dealt out"),
        _DIM,
        _PES,
        Column("batch", "integer", "", "samples of a batch, all PEs together"),
        Column("median", "number", "seconds", "of a batch, slowest PE: median of the medians of launches"),
        Column("low", "number", "seconds", "smallest median of a launch"),
        Column("high", "number", "seconds", "largest median of a launch"),
        Column("q1", "number", "seconds", "first quartile of all timed batches"),
        Column("q3", "number", "seconds", "third quartile"),
        Column("launches", "integer", "", "how often it was measured on tables prepared anew"),
        Column("iterations", "integer", "", "timed batches of all launches"),
        Column("distinct", "integer", "", "batches that differ; when all are through they begin anew"),
        Column("rate", "number", "rows a second", "rows looked up, all PEs together, by the median"),
        Column("remote_share", "number", "", "of the indices, those whose row another PE owns"),
        Column("bytes_wire", "number", "bytes", "embeddings that crossed PEs in a batch, counted, mean of timed ones"),
        Column("bytes_ids", "number", "bytes", "the same of row numbers"),
        Column("v_fr", "number", "bytes", "4 D times the remote indices of a batch, mean of timed ones"),
        Column("check", "text", "", "passed, failed or not checked"),
        Column("error", "number", "", "largest error over the sum of magnitudes; empty: not checked"),
        _OVERSUBSCRIBED,
    ],
    "figures": [
        Column("figure", "text", "", "figure or table of a paper (mgg/report/experiments/)"),
        *_SETTING,
        Column("model", "text", "", "model of a training run, whose epochs are compared; empty: one product"),
        Column("dim", "integer", "columns", "D, embedding columns; empty for a training run"),
        _PES,
        Column("subject", "text", "", "what the paper proposes, or compares others with"),
        Column("rival", "text", "", "what is compared with it"),
        Column("options", "text", "", "options of the subject's technique, JSON with sorted keys"),
        Column("subject_median", "number", "seconds", "median time of the subject; empty: memory is compared"),
        Column("rival_median", "number", "seconds", "median time of the rival; empty: memory is compared"),
        Column("subject_memory", "integer", "bytes", "gpu_memory of the subject; empty: times are compared"),
        Column("rival_memory", "integer", "bytes", "gpu_memory of the rival; empty: times are compared"),
        Column("ratio", "number", "", "the rival's time over the subject's, or its memory over the subject's"),
        Column("paper", "number", "", "the same in the paper, often an average over other graphs; empty: no number"),
        Column(
            "verdict", "text", "", "whether the slower one is the paper's, or why that is not to be told; empty: none"
        ),
        Column("untold", "text", "", "why nothing is learned here: CPU cores or one workgroup; empty: something is"),
        _OVERSUBSCRIBED,
    ],
    "knobs": [
        *_SETTING,
        _DIM,
        _PES,
        Column("technique", "text", "", "aggregation technique"),
        Column("options", "text", "", "its other options, JSON with sorted keys"),
        Column("settings", "integer", "", "settings of ps, dist and wpb that were measured"),
        Column("default", "number", "seconds", "median with the default knobs; empty: not measured"),
        Column("default_ps", "integer", "", "default arcs of a neighbor partition; empty: the records do not say"),
        Column("default_dist", "integer", "", "default interleaving distance; the same"),
        Column("default_wpb", "integer", "", "default warps a block; the same"),
        Column(
            "start", "number", "seconds", "median with 1, 1, 1, where the paper's search begins; empty: not measured"
        ),
        Column("best", "number", "seconds", "smallest median"),
        Column("best_ps", "integer", "", "its arcs of a neighbor partition"),
        Column("best_dist", "integer", "", "its interleaving distance"),
        Column("best_wpb", "integer", "", "its warps a block"),
        Column("search", "number", "seconds", "median where the paper's search would end; empty: 1, 1, 1 is missing"),
        Column("search_ps", "integer", "", "its arcs of a neighbor partition"),
        Column("search_dist", "integer", "", "its interleaving distance"),
        Column("search_wpb", "integer", "", "its warps a block"),
        Column("search_steps", "integer", "", "settings that the search would have measured"),
        _OVERSUBSCRIBED,
    ],
    "checks": [
        _MACHINE,
        *_GRAPH,
        _DEVICE,
        _DTYPE,
        _LABEL,
        Column("passed", "integer", "", "timings whose result was within the tolerance"),
        Column("failed", "integer", "", "timings whose result was not"),
        Column("unchecked", "integer", "", "timings whose result was not checked"),
        Column("error", "number", "", "largest error of the checked ones; empty: none was checked"),
        Column("tolerance", "number", "", "largest error allowed, the strictest of them"),
    ],
    "training": [
        Column("run", "integer", "", "number of the run in this report; table epochs refers to it"),
        _MACHINE,
        *_GRAPH,
        _DEVICE,
        _BACKEND,
        _DTYPE,
        *_MODEL,
        Column("weights", "text", "", "sha256 of the weights that it started from; empty: random ones"),
        Column(
            "side",
            "text",
            "",
            "what trained it: mgg, unfused (of vertex programs), or a library: pyg, pyg_bmm, pyg_sampled",
        ),
        *_TECHNIQUE,
        _RUN_SCHEME,
        _PES,
        Column("seed", "integer", "", "seed of weights and dropout"),
        Column("asked_epochs", "integer", "", "epochs asked for; where that was not noted, those trained"),
        Column("epochs", "integer", "", "epochs trained, fewer where patience ended the run"),
        Column("features", "integer", "columns", "input features of a node"),
        Column("classes", "integer", "", "number of classes"),
        Column("parameters", "integer", "", "trainable numbers"),
        Column("loss", "number", "nats", "training loss (cross-entropy, with dropout) of the last epoch"),
        _METRIC,
        Column(
            "best_epoch", "integer", "", "epoch whose weights are kept: the best, or the last, by the setting selection"
        ),
        Column("train_accuracy", "number", "", "metric of the training nodes at best_epoch, 0 to 1"),
        Column("validation_accuracy", "number", "", "the same for the validation nodes; empty: there are none"),
        Column("test_accuracy", "number", "", "the same for the test nodes"),
        Column("q1", "number", "seconds", "first quartile of the time of an epoch, slowest PE"),
        Column("median", "number", "seconds", "median of the same"),
        Column("q3", "number", "seconds", "third quartile of the same"),
        *_PHASES,
        Column("bytes_wire", "integer", "bytes", "crossed PEs in the aggregations of one epoch, summed over PEs"),
        _GPU_MEMORY,
        _OVERSUBSCRIBED,
    ],
    "accuracy": [
        _MACHINE,
        *_GRAPH,
        _DEVICE,
        _DTYPE,
        Column("model_label", "text", "", "model as the page calls it"),
        _LABEL,
        _RUN_SCHEME,
        _PES,
        _METRIC,
        Column("seeds", "integer", "", "runs that differ in the seed alone"),
        Column("test_mean", "number", "", "mean of the metric of the test nodes over these runs, 0 to 1"),
        Column("test_deviation", "number", "", "sample standard deviation of the same; empty: one run"),
        Column("test_min", "number", "", "smallest of the same"),
        Column("test_max", "number", "", "largest of the same"),
        Column("validation_mean", "number", "", "the same of the validation nodes; empty: there are none"),
        Column("train_mean", "number", "", "the same of the training nodes"),
        Column("epoch", "number", "seconds", "median over these runs of their median time of an epoch"),
        Column("bytes_wire", "integer", "bytes", "crossed PEs in one epoch, the largest of these runs"),
        _GPU_MEMORY,
        _OVERSUBSCRIBED,
    ],
    "epochs": [
        Column("run", "integer", "", "run of table training"),
        Column("epoch", "integer", "", "counted from 1"),
        Column("loss", "number", "nats", "training loss (cross-entropy, with dropout)"),
        Column("train_accuracy", "number", "", "metric of the training nodes, 0 to 1"),
        Column(
            "validation_loss", "number", "nats", "loss of the validation nodes, without dropout; empty: there are none"
        ),
        Column("validation_accuracy", "number", "", "the same for the validation nodes; empty: there are none"),
        Column("test_accuracy", "number", "", "the same for the test nodes"),
        Column("seconds", "number", "seconds", "time of the epoch, slowest PE, evaluation included"),
        *_PHASES,
    ],
    "jobs": [
        Column("run", "integer", "", "run of the workflow that the job was in, counted from 1; empty: unknown"),
        _STAGE,
        _RULE,
        Column("wildcards", "text", "", "what the job was for, JSON with sorted keys"),
        Column("attempts", "integer", "", "how often the job was started until it passed"),
        Column("slurm_job", "text", "", "Slurm's number of the job; empty: none, or unknown"),
        Column("started", "text", "", "when its command started, UTC; empty: unknown"),
        Column("start", "number", "seconds", "the same, since 1970-01-01 UTC"),
        Column("waited", "number", "seconds", "from submission to that; empty: not submitted, or unknown"),
        Column("seconds", "number", "seconds", "that its command ran; empty: not measured"),
        Column("granted", "yes/no", "", "a scheduler had reserved what it asked for"),
        Column("seen", "number", "seconds", "how long it had run when its memory and cores were last looked at"),
        Column("runtime_asked", "number", "seconds", "it might have run; empty: unknown"),
        Column("runtime_share", "number", "", "seconds over runtime_asked"),
        Column("memory_asked", "integer", "bytes", "it might have used on each host; empty: unknown"),
        Column(
            "memory", "integer", "bytes", "most in use by its processes, seen or told by Slurm's ranks; empty: neither"
        ),
        Column("memory_share", "number", "", "memory over memory_asked"),
        Column("ranks", "integer", "", "processes that its cores were for: Slurm's tasks; 1 on one machine"),
        Column("cores_asked", "integer", "", "cores it was given, all hosts together; empty: unknown"),
        Column("cores", "number", "", "cores that it kept busy, mean until last looked at; empty: not seen"),
        Column("cores_share", "number", "", "cores over cores_asked"),
    ],
    "requests": [
        _STAGE,
        _RULE,
        Column("resource", "text", "", "time (seconds), memory (bytes of a host) or cores (of a rank)"),
        Column("jobs", "integer", "", "jobs of the rule"),
        Column("known", "integer", "", "those of which it is known what they used"),
        Column("asked", "number", "", "most that one asked for, in the unit of the resource"),
        Column("used", "number", "", "most that one used; empty: unknown"),
        Column("share", "number", "", "largest share of its request that a job used"),
        Column("verdict", "text", "", "fits, far too large, too small, tried again or unknown"),
        Column("factor", "number", "", "by which to change the request of every job; empty: leave it"),
        Column("enough", "number", "", "then enough for the largest: minutes, MB or cores, as a profile has them"),
    ],
}

TABLES = {name: [*columns, *ORIGIN] for name, columns in _TABLES.items()}

#: What each table holds, one line; a row is ...
ABOUT = {
    "machines": "one row a machine, software and place that records come from",
    "graphs": "one row a graph",
    "partitions": "one row a way of splitting a graph over PEs",
    "quality": "one row a partition: balance, cut and the volumes of the CoLa paper",
    "halos": "one row a pair of PEs of a partition of at most 128 PEs",
    "aggregate": "one row a timed product: time, speedup, bytes, check",
    "fastest": "one row a comparison: techniques that differ in nothing else",
    "choices": "one row a comparison in which technique auto picked one: its pick beside the fastest",
    "predictions": "one row a prediction of the cost model: nothing ran",
    "latencies": "one row a transfer between PEs: its size, in single rows or at once, and its time",
    "lookups": "one row a side, batch size and number of PEs of embedding lookups",
    "figures": "one row a comparison of a paper's figure, where figures were asked for",
    "knobs": "one row a sweep of ps, dist and wpb: best, default, and the end of the paper's search",
    "checks": "one row a technique and graph: results against a float64 product",
    "training": "one row a training run",
    "accuracy": "one row a group of training runs that differ in the seed alone",
    "epochs": "one row an epoch of a training run",
    "jobs": "one row a job of the workflow: when it ran, what it asked for, what it used",
    "requests": "one row a rule and resource: most asked for and used, and the factor to change",
}
