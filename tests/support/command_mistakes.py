"""Mistakes at the command line: by what they are, the arguments of ``mgg`` and part of the line that it says."""

from support.workflow import ROOT

MISTAKES = {
    "no such command": (["agregate"], "aggregate"),
    "no such option": (["partition", "{made}/graph", "--pse", "2", "--out", "x"], "--pes"),
    "missing option": (["partition", "{made}/graph", "--pes", "2"], "--out"),
    "not a number": (["partition", "{made}/graph", "--pes", "two", "--out", "x"], "two"),
    "no PEs": (["partition", "{made}/graph", "--pes", "0", "--out", "x"], "--pes"),
    "unknown scheme": (["partition", "{made}/graph", "--pes", "2", "--scheme", "metys", "--out", "x"], "metis"),
    "unknown data set": (["retrieve", "coro", "--out", "x"], "cora"),
    "unknown generator": (["generate", "redit-like", "--out", "x"], "reddit-like"),
    "the name of a real data set": (["generate", "web-like", "--name", "cora", "--out", "x"], "a real data set"),
    "the name of another generator": (
        ["generate", "web-like", "--name", "planted", "--out", "x"], "is that of a generator",
    ),
    "a name that is none": (["generate", "web-like", "--name", "a/b", "--out", "x"], "only letters"),
    "no such type": (
        ["aggregate", "{made}/layout2", "--technique", "halo", "--dim", "4", "--dtype", "fp32,fp8", "--out", "x"],
        "'fp8' is not one of fp32, bf16",
    ),
    "no graph there": (["partition", "nowhere", "--pes", "2", "--out", "x"], "nowhere"),
    "a layout is not a graph": (["partition", "{made}/layout2", "--pes", "2", "--out", "x"], "not a graph folder"),
    "a graph is not a layout": (["train", "{made}/graph", "--model", "gcn", "--out", "x"], "not a layout folder"),
    "too many columns": (
        ["aggregate", "{made}/layout2", "--technique", "halo", "--dim", "99999", "--out", "x"], "65536",
    ),
    "a folder for records": (
        ["aggregate", "{made}/layout2", "--technique", "halo", "--dim", "4", "--out", "{made}"], "is a folder",
    ),
    "a file of another kind": (
        ["aggregate", "{made}/layout2", "--technique", "halo", "--dim", "4", "--out", "{made}/raw/digits.csv.gz"],
        "no timing records",
    ),
    "below a file": (
        ["aggregate", "{made}/layout2", "--technique", "halo", "--dim", "4", "--out", "{made}/raw/source.yaml/x"],
        "source.yaml: is not a folder",
    ),
    "records where nobody can write": (
        ["aggregate", "{made}/layout2", "--technique", "halo", "--dim", "4", "--out", "/proc/self/x"],
        "cannot be written",
    ),
    "an option of a technique without options": (
        ["aggregate", "{made}/layout2", "--technique", "ring", "--dim", "4", "--set", "ps=4", "--out", "x"],
        "there are none",
    ),
    "over another kind of folder": (
        ["layout", "{made}/graph", "{made}/part2", "--out", "{made}/graph"], "not an output",
    ),
    "a technique for a library": (
        ["train", "{made}/layout2", "--model", "gcn", "--side", "pyg", "--technique", "halo", "--out", "x"],
        "--technique: side pyg aggregates by itself",
    ),
    "no layout there": (["train", "nowhere", "--model", "gcn", "--out", "x"], "nowhere"),
    "unknown technique": (["aggregate", "{made}/layout2", "--technique", "cula", "--dim", "4", "--out", "x"], "cola"),
    "a variant of nothing": (
        ["aggregate", "{made}/layout2", "--technique", "halo", "--dim", "4", "--variant", "mgg:ps=2", "--out", "x"],
        "is not among those named",
    ),
    "a variant of nothing predicted": (
        ["predict", "{made}/graph", "--pes", "2", "--technique", "halo", "--variant", "cola:fusion=false"],
        "--variant cola:fusion=false: technique 'cola' is not among those named",
    ),
    "a variant out of range": (
        ["aggregate", "{made}/layout2", "--technique", "mgg", "--dim", "4", "--variant", "mgg:ps=64", "--out", "x"],
        "option ps",
    ),
    "nothing that can run": (
        ["aggregate", "{made}/layout2", "--technique", "local", "--dim", "4", "--out", "x"],
        "runs on one PE",
    ),
    "a knob that is tuned": (
        ["tune", "{made}/layout2", "--dim", "4", "--set", "ps=4"],
        "technique mgg: mgg tune sets option ps itself: leave it out",
    ),
    "an unknown figure": (["report", "x", "--figure", "mgg_fig12", "--out", "y"], "did you mean"),
    "a note without its figure": (["report", "x", "--note", "mgg_fig11=why", "--out", "y"], "this figure is not shown"),
    "zero columns": (["aggregate", "{made}/layout2", "--technique", "halo", "--dim", "4,0", "--out", "x"], "4,0"),
    "unknown option of a technique": (
        ["aggregate", "{made}/layout2", "--technique", "mgg", "--dim", "4", "--set", "wbp=2", "--out", "x"], "wpb",
    ),
    "a setting that a model has not": (
        ["train", "{made}/layout2", "--model", "sgc", "--set", "sgc.alpha=2", "--out", "x"],
        "setting of model sgc: alpha: unknown field; known: backward, class_weights, hops, kernels, learning_rate",
    ),
    "a model of one's own that is not there": (
        ["train", "{made}/layout2", "--model", "./mine.py", "--set", "mine.hidden=2", "--out", "x"],
        "model './mine.py': No such file or directory, seen from /",
    ),
    "a model of one's own with the name of MGG's": (
        ["train", "{made}/layout2", "--model", str(ROOT / "mgg/model/zoo/gcn.py"), "--out", "x"],
        "gcn is a model of MGG's: rename the file, or ask for --model gcn",
    ),
    "the content of a model of MGG's": (
        ["train", "{made}/layout2", "--model", "gcn", "--model-hash", "0" * 64, "--out", "x"],
        "--model-hash: gcn is one of MGG's models; the option is for a file of your own",
    ),
    "weights to predict with that are not there": (
        ["infer", "{made}/layout2", "--model", "gcn", "--weights", "w.npz", "--out", "x"], "w.npz: cannot be read",
    ),
    "weights of PyTorch's own format": (
        ["infer", "{made}/layout2", "--model", "gcn", "--weights", "w.pt", "--out", "x"],
        "w.pt: is neither a .safetensors nor a .npz file; in PyTorch: safetensors.torch.save_file(",
    ),
    "a setting of training in inference": (
        ["infer", "{made}/layout2", "--model", "gcn", "--weights", "w.npz", "--set", "patience=2", "--out", "x"],
        "setting patience: only affects training: leave it out",
    ),
    "a setting of another model": (
        ["train", "{made}/layout2", "--model", "gcn", "--set", "gin.layers=2", "--out", "x"],
        "--set gin.layers: 'gin' is neither the model nor the technique; did you mean gcn?",
    ),
    "an option of the technique that it has not": (
        ["train", "{made}/layout2", "--model", "gcn", "--set", "halo.alpha=2", "--out", "x"],
        "technique halo: option alpha: unknown field; known: boundary, split, stale, wire, workgroup",
    ),
    "option of an absent technique": (
        ["aggregate", "{made}/layout2", "--technique", "halo", "--dim", "4", "--set", "mgg.ps=2", "--out", "x"],
        "mgg.ps",
    ),
    "not an assignment": (
        ["aggregate", "{made}/layout2", "--technique", "mgg", "--dim", "4", "--set", "ps", "--out", "x"], "key=value",
    ),
    "unknown model": (["train", "{made}/layout2", "--model", "gnc", "--out", "x"], "gcn"),
    "a setting for an option": (
        ["train", "{made}/layout2", "--model", "gcn", "--patience", "3", "--out", "x"],
        "No such option '--patience': patience is a setting of the model, --set patience=VALUE (see mgg train --help)",
    ),
    "an option that is no setting": (
        ["train", "{made}/layout2", "--model", "gcn", "--patients", "3", "--out", "x"], "No such option '--patients'",
    ),
    **{
        f"several to train with, {option}": (
            ["train", "{made}/layout2", "--model", "gcn", option, "a,b", "--out", "x"],
            f"Invalid value for '{option}': takes one, found 'a,b': run mgg train once for each of them",
        )
        for option in ("--model", "--technique")
    },
    "unknown setting": (["train", "{made}/layout2", "--model", "gcn", "--set", "hiden=3", "--out", "x"], "hidden"),
    "a setting that the model ignores": (
        ["train", "{made}/layout2", "--model", "gin", "--set", "weight_decay=10", "--out", "x"], "weight_decay",
    ),
    "impossible setting": (
        ["train", "{made}/layout2", "--model", "gcn", "--set", "dropout=1.5", "--out", "x"], "dropout",
    ),
    "a metric without its labels": (
        ["train", "{made}/layout2", "--model", "gcn", "--metric", "roc_auc", "--out", "x"], "take accuracy",
    ),
    "no such metric": (["train", "{made}/layout2", "--model", "gcn", "--metric", "acuracy", "--out", "x"], "accuracy"),
    **{
        f"{option} {value}": (
            ["train", "{made}/layout2", "--model", "gcn", option, value, "--out", "x"], f"Invalid value for '{option}'",
        )
        for option in ("--stall-after", "--checkpoint-every")
        for value in ("nan", "inf", "1e300", "0")
    },
    **{
        f"scale {value}": (["generate", "planted", "--scale", value, "--out", "x"], "Invalid value for '--scale'")
        for value in ("nan", "inf", "1e300", "0")
    },
    **{
        f"{option} {value}": (
            ["train", "{made}/layout2", "--model", "gcn", option, str(value), "--out", "x"],
            f"Invalid value for '{option}': {value} is not in the range {least}<=x<={most}",
        )
        for option, least, most in (("--seed", 0, 2**63 - 1), ("--epochs", 1, 10**9))
        for value in (least - 1, most + 1)
    },
    "a seed of a graph": (["generate", "planted", "--seed", str(2**63), "--out", "x"], "Invalid value for '--seed'"),
    "more products than a year has": (
        ["aggregate", "{made}/layout2", "--technique", "halo", "--dim", "4", "--iterations", "9" * 30, "--out", "x"],
        "Invalid value for '--iterations'",
    ),
    "no such schedule": (
        ["train", "{made}/layout2", "--model", "gcn", "--set", "schedule=cosin", "--out", "x"], "schedule",
    ),
    "weights that are not there": (
        ["train", "{made}/layout2", "--model", "gcn", "--weights", "nowhere", "--out", "x"], "no weights of mgg train",
    ),
    "bf16 with a technique that lacks it": (
        ["train", "{made}/layout2", "--model", "gcn", "--technique", "cola", "--dtype", "bf16", "--out", "x"],
        "takes no bf16",
    ),
    "no records": (["report", "nowhere.jsonl", "--out", "x"], "nowhere.jsonl"),
}  # fmt: skip
