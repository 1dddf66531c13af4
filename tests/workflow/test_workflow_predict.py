"""Predictions in the workflow: partitions alone are made for them, options reach the command, mistakes are named."""

import re

import pytest
from support.workflow import Folder, job_counts, settings_of

from mgg.errors import InputError
from mgg.records import read_lines
from mgg.records.prediction import PredictionRecord

SMALL = {
    "graph": {"datasets": {"reddit-like": {"scale": 0.001}}},
    "partition": {"pes": [1], "quality_pes": []},
    "aggregate": {"techniques": ["auto", "halo"], "dims": [4], "iterations": 2},
    "train": {"models": []},
}


@pytest.mark.slow
def test_predictions_need_only_partitions(folder: Folder):
    predict = {
        "pes": [16, 1024], "techniques": ["halo", "mgg"], "dims": [8, 16], "machine": "a800",
        "network": "infiniband-hdr", "links": {"nvlink": {"bandwidth": 2.5e11}},
        "variants": {"halo": [{}, {"workgroup": [4, 8]}], "cola": [{"fusion": False}]},  # cola is not predicted
    }  # fmt: skip
    folder.overlay(SMALL | {"predict": predict}, "predict.yaml")
    run = folder.run("--dry-run", overlay="predict.yaml")
    assert run.returncode == 0, run.stdout
    assert job_counts(run.stdout) == {
        "generate": 1, "partition": 3, "layout": 1, "aggregate": 1, "predict": 1, "report": 1, "default": 1, "total": 9,
    }  # fmt: skip
    command = re.search(r"mgg predict .*", run.stdout)[0]
    assert "results/partition/reddit-like/p16 results/partition/reddit-like/p1024 --technique halo,mgg" in command
    assert "--dim 8,16 --dtype fp32 --machine a800 --variant halo --variant halo:workgroup=4,8 --link nvl" in command
    assert "--link nvlink.bandwidth=250000000000.0 --network" in command and "fusion" not in command
    assert "--network infiniband-hdr --replace --out results/predict/reddit-like.jsonl" in command
    assert "--technique auto,halo" in run.stdout


@pytest.mark.slow
def test_workflow_runs_from_graph_to_predictions(folder: Folder):
    folder.overlay(SMALL | {"predict": {"pes": [16], "techniques": ["halo", "cola"]}}, "predict.yaml")
    run = folder.run("--until", "predict", overlay="predict.yaml")
    assert run.returncode == 0, run.stdout
    found = read_lines(folder.made("predict/reddit-like.jsonl"), PredictionRecord)
    assert [(record.technique, record.pes, record.workgroup) for record in found] == [("halo", 16, 8), ("cola", 16, 8)]


@pytest.mark.parametrize(
    ("predict", "message"),
    [
        ({"links": {"nvlnk": {"bandwidth": 1e9}}}, "predict: link class 'nvlnk' is unknown; did you mean nvlink?"),
        ({"pes": [8], "machine": "h20"}, "predict.machine: machine 'h20': neither a file of mgg links nor known"),
        ({"techniques": ["auto"]}, "predict.techniques: technique 'auto': picks one of the others"),
        ({"pes": [8], "links": {"qpi": {"latency": 1e-6}}}, "link qpi: this machine has none"),
        ({"pes": [0]}, "predict.pes.0: "),
        ({"variants": {"cola": [{"fusing": True}]}}, "predict.variants: technique cola: option fusing"),
    ],
)
def test_invalid_predictions_are_named(predict: dict, message: str):
    with pytest.raises(InputError, match=re.escape(message)):
        settings_of(SMALL | {"predict": predict})
