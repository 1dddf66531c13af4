"""Every mistake at the command line is one line and exit code 2, and writes nothing."""

import shlex

import pytest
from support.ranks.commands import files, mgg
from support.workflow import ROOT

#: Words that come again later in a command line replace the earlier ones.
AGGREGATE = "aggregate {made}/layout2 --technique halo --dim 4 --out x"
PREDICT = "predict {made}/part2"
TRAIN = "train {made}/layout2 --model gcn --out x"
INFER = "infer {made}/layout2 --model gcn --out x --weights w.npz"

#: A command line, and part of what it says.
MISTAKES = [
    ("agregate", "aggregate"),
    ("partition {made}/graph --pse 2 --out x", "--pes"),
    ("partition {made}/graph --pes 2", "--out"),
    ("partition {made}/graph --pes two --out x", "two"),
    ("partition {made}/graph --pes 0 --out x", "--pes"),
    ("partition {made}/graph --pes 2 --scheme metys --out x", "metis"),
    ("partition nowhere --pes 2 --out x", "nowhere"),
    ("partition {made}/layout2 --pes 2 --out x", "not a graph folder"),
    ("demo --configfile none.yaml", "--configfile none.yaml: no such file"),
    ("demo --out {made}/raw/source.yaml", "source.yaml: is no folder"),
    ("retrieve coro --out x", "cora"),
    ("graph cora --memory much --out x", "--memory: 'much' is not"),
    ("generate redit-like --out x", "reddit-like"),
    ("generate web-like --name cora --out x", "a real data set"),
    ("generate web-like --name planted --out x", "is that of a generator"),
    ("generate web-like --name a/b --out x", "only letters"),
    ("generate planted --scale 0 --out x", "Invalid value for '--scale'"),
    (f"generate planted --seed {2**63} --out x", "Invalid value for '--seed'"),
    ("layout {made}/graph {made}/part2 --out {made}/graph", "not an output"),
    ("report x --figure mgg_fig12 --out y", "did you mean"),
    ("report x --note mgg_fig11=why --out y", "this figure is not shown"),
    ("report nowhere.jsonl --out x", "nowhere.jsonl"),
    ("tune {made}/layout2 --dim 4 --set ps=4", "technique mgg: mgg tune sets option ps itself: leave it out"),
    (f"{AGGREGATE} --dtype fp32,fp8", "'fp8' is not one of fp32, bf16"),
    (f"{AGGREGATE} --dim 4,0", "4,0"),
    (f"{AGGREGATE} --dim 99999", "65536"),
    (f"{AGGREGATE} --out {{made}}", "is a folder"),
    (f"{AGGREGATE} --out {{made}}/raw/digits.csv.gz", "no timing records"),
    (f"{AGGREGATE} --out {{made}}/raw/source.yaml/x", "source.yaml: is not a folder"),
    (f"{AGGREGATE} --out /proc/self/x", "cannot be written"),
    (f"{AGGREGATE} --technique ring --set ps=4", "there are none"),
    (f"{AGGREGATE} --technique cula", "cola"),
    (f"{AGGREGATE} --technique local", "runs on one PE"),
    (f"{AGGREGATE} --variant mgg:ps=2", "is not among those named"),
    (f"{AGGREGATE} --technique mgg --variant mgg:ps=64", "option ps"),
    (f"{AGGREGATE} --technique mgg --set wbp=2", "wpb"),
    (f"{AGGREGATE} --set mgg.ps=2", "mgg.ps"),
    (f"{AGGREGATE} --technique mgg --set ps", "key=value"),
    (f"{AGGREGATE} --technique auto,halo --set halo.x=1", "technique halo: option"),
    (f"{AGGREGATE} --technique auto --set ps=2", "--set: technique auto picks at default options"),
    (f"{AGGREGATE} --iterations {'9' * 30}", "Invalid value for '--iterations'"),
    ("train nowhere --model gcn --out x", "nowhere"),
    ("train {made}/graph --model gcn --out x", "not a layout folder"),
    (f"{TRAIN} --side pyg --technique halo", "--technique: side pyg aggregates by itself"),
    (
        f"{TRAIN} --model sgc --set sgc.alpha=2",
        "setting of model sgc: alpha: unknown field; known: backward, class_weights, hops, kernels, learning_rate",
    ),
    (f"{TRAIN} --model ./mine.py --set mine.hidden=2", "model './mine.py': No such file or directory, seen from /"),
    (f"{TRAIN} --model {ROOT}/mgg/model/zoo/gcn.py", "a model of MGG's: rename the file, or ask for --model gcn"),
    (
        f"{TRAIN} --model-hash {'0' * 64}",
        "--model-hash: gcn is one of MGG's models; the option is for a file of your own",
    ),
    (
        f"{TRAIN} --set gin.layers=2",
        "--set gin.layers: 'gin' is neither the model nor the technique; did you mean gcn?",
    ),
    (
        f"{TRAIN} --set halo.alpha=2",
        "technique halo: option alpha: unknown field; known: boundary, split, stale, wire, workgroup",
    ),
    (f"{TRAIN} --model gnc", "gcn"),
    (
        f"{TRAIN} --patience 3",
        "No such option '--patience': patience is a setting of the model, --set patience=VALUE (see mgg train --help)",
    ),
    (f"{TRAIN} --patients 3", "No such option '--patients'"),
    *(
        (f"{TRAIN} {each} a,b", f"Invalid value for '{each}': takes one, found 'a,b': run mgg train once for each")
        for each in ("--model", "--technique")
    ),
    (f"{TRAIN} --set hiden=3", "hidden"),
    (f"{TRAIN} --model gin --set weight_decay=10", "weight_decay"),
    (f"{TRAIN} --set dropout=1.5", "dropout"),
    (f"{TRAIN} --set schedule=cosin", "schedule"),
    (f"{TRAIN} --metric roc_auc", "take accuracy"),
    (f"{TRAIN} --metric acuracy", "accuracy"),
    *((f"{TRAIN} --stall-after {each}", "Invalid value for '--stall-after'") for each in ("nan", "inf", "1e300", "0")),
    (f"{TRAIN} --checkpoint-every 1e300", "Invalid value for '--checkpoint-every'"),
    *(
        (f"{TRAIN} {option} {value}", f"Invalid value for '{option}': {value} is not in the range {least}<=x<={most}")
        for option, least, most in (("--seed", 0, 2**63 - 1), ("--epochs", 1, 10**9))
        for value in (least - 1, most + 1)
    ),
    *((f"{TRAIN} --memory-per-pe '{each}'", f"--memory-per-pe: '{each}' is not") for each in ("much", "")),
    (f"{TRAIN} --weights nowhere", "no weights of mgg train"),
    (f"{TRAIN} --technique cola --dtype bf16", "takes no bf16"),
    (INFER, "w.npz: cannot be read"),
    (
        f"{INFER} --weights w.pt",
        "w.pt: is neither a .safetensors nor a .npz file; in PyTorch: safetensors.torch.save_file(",
    ),
    (f"{INFER} --set patience=2", "setting patience: only affects training: leave it out"),
    ("links --latency --refresh", "leave out --refresh"),
    ("links --latency --pes 2 --backend simulated --out {made}/raw/source.yaml", "holds no records of this kind"),
    ("links --backend simulated --out .", ".: is a folder; links are written to a file"),
    (
        "predict {made}/graph --pes 2 --technique halo --variant cola:fusion=false",
        "--variant cola:fusion=false: technique 'cola' is not among those named",
    ),
    (f"{PREDICT} --link nvlink=1", "--link nvlink: expected CLASS.FIELD=NUMBER"),
    (f"{PREDICT} --link nvlnk.bandwidth=1e9", "link class 'nvlnk' is unknown; did you mean nvlink?"),
    (f"{PREDICT} --link nvlink.bandwidth=1.2.3e4", "predict: links.nvlink.bandwidth: input should be a valid number"),
    (f"{PREDICT} --link nvlink.bandwidth=-1", "predict: links.nvlink.bandwidth: input should be greater than 0"),
    (f"{PREDICT} --network ethernet", "link class 'ethernet' is unknown"),
    (
        f"{PREDICT} --machine h300",
        "machine 'h300': neither a file of mgg links nor known (there are a100, a800, h100, h200, v100)",
    ),
    (f"{PREDICT} --technique auto", "mgg predict marks its pick by itself, where it is among the techniques named"),
    (f"{PREDICT} --pes 2,5000", "holds a number that is not in 1..4096"),
    (f"{PREDICT} --pes 8", "--pes: partitions and layouts are split already"),
]


@pytest.mark.parametrize(("words", "said"), MISTAKES)
def test_input_error_is_one_line_with_exit_code_2(made, tmp_path, words, said):
    done = mgg(*shlex.split(words.format(made=made)), cwd=tmp_path, code=2)
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("mgg: ") and said in line
    assert (done.stdout, files(tmp_path)) == ("", [])
