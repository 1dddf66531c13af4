"""mgg/config.py and what is derived from it."""

import runpy
from typing import get_args

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from support.workflow import ROOT

from mgg import config
from mgg.config import refuse_repeats
from mgg.errors import InputError
from mgg.records import Side, TrainRecord
from mgg.train.targets.metrics import METRICS


def test_schema_file_is_generated_from_the_code():
    generate = runpy.run_path(str(ROOT / "workflow/schemas/generate.py"))
    assert generate["TARGET"].read_text(encoding="utf-8") == generate["text"](), "run make schema"


def test_default_config_states_every_field():
    values = yaml.safe_load((ROOT / "config/config.yaml").read_text(encoding="utf-8"))
    assert config.validate(values)
    assert set(values) == set(config.Config.model_fields)
    for name, section in values.items():
        if isinstance(section, dict):
            assert set(section) == set(config.Config.model_fields[name].annotation.model_fields), name


def test_every_field_is_described():
    schema = config.Config.model_json_schema()
    for part in [schema, *schema["$defs"].values()]:
        for name, field in part.get("properties", {}).items():
            assert "description" in field or "$ref" in field, name


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("agregate: {}", "config: agregate: unknown field; did you mean aggregate?"),
        ("aggregate: []", "config: aggregate: input should be a valid dictionary"),
        ("results: ''", "config: results: "),
        ("results: -x", "config: results: "),
        ("graph: {datasets: {digits: {scale: -1}}}", "graph.datasets.digits.scale"),
        ("graph: {datasets: {a b: {}}}", "graph.datasets.a b"),
        (f"graph: {{datasets: {{{'a' * 129}: {{}}}}}}", "should match pattern '^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$'"),
        (
            f"graph: {{datasets: {{planted: {{seed: {2**63}}}}}}}",
            "config: graph.datasets.planted.seed: input should be",
        ),
        ("aggregate: {iterations: 10000000}", "config: aggregate.iterations: input should be less than or equal to"),
        ("aggregate: {warmup: 10000000}", "config: aggregate.warmup: input should be less than or equal to 1000000"),
        ("aggregate: {variants: {mgg: [{ps: []}]}}", "config: aggregate.variants.mgg.0.ps: list should have at"),
        (
            "aggregate: {variants: {mgg: [{ps: [2, [4]]}]}}",
            "config: aggregate.variants.mgg.0.ps.1: takes one value, found a list of 1",
        ),
        (f"train: {{seeds: [0, {2**63}]}}", "config: train.seeds.1: input should be less than or equal to 92233720"),
        ("train: {seeds: 3}", "config: train.seeds: input should be a valid list, found 3"),
        ("train: {epochs: 1000000001}", "config: train.epochs: input should be less than or equal to 1000000000"),
        ("train: {epochs: [10, 20]}", "config: train.epochs: takes one value, found a list of 2"),
        ("train: {settings: {gcn: {hidden: [8, 9]}}}", "train.settings.gcn.hidden: takes one value, found a list of 2"),
        ("train: {datasets: [cora]}", "train.datasets: 'cora' is not in graph.datasets (digits)"),
        ("train: {sides: {dgl: [gcn]}}", "config: train.sides.dgl"),
        (
            "train: {models: [gcn, ./a/b.py], sides: {unfused: [c]}}",
            "train.sides: unfused: 'c' is not in train.models; did you mean gcn?",
        ),
        ("train: {pes: [2], sides: {pyg: [gcn]}}", "train.sides: pyg trains on 1 PE, which is not in train.pes ([2])"),
        (
            "train: {dataset_settings: {digit: {gcn: {hidden: 4}}}}",
            "train.dataset_settings: 'digit' is not in graph.datasets; did you mean digits?",
        ),
    ],
)
def test_wrong_field_is_named_in_one_line(values: str, message: str):
    with pytest.raises(InputError) as error:
        config.validate(yaml.safe_load(values))
    assert message in str(error.value) and "\n" not in str(error.value)


def test_metrics_are_those_of_the_training():
    metrics = config.TrainConfig.model_fields["metric"].annotation
    assert set(get_args(metrics)) == {"auto", *METRICS}
    assert set(get_args(TrainRecord.model_fields["metric"].annotation)) == set(METRICS)


def test_settings_may_be_null_or_have_exponents():
    """YAML 1.1 takes 5e-4 for text."""
    gcn = "{patience: null, weight_decay: 5e-4, learning_rate: 1E3, optimizer: e5}"
    found = config.validate(yaml.safe_load(f"train: {{settings: {{gcn: {gcn}}}}}")).train.settings["gcn"]
    assert found == {"patience": None, "weight_decay": 5e-4, "learning_rate": 1000.0, "optimizer": "e5"}


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
trees = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)


@settings(max_examples=50)
@given(st.dictionaries(st.sampled_from([*config.Config.model_fields, "other"]), trees, max_size=4))
def test_random_mapping_is_accepted_or_refused_in_one_line(values: dict):
    try:
        config.validate(values)
    except InputError as error:
        assert str(error)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("graph: {}\ntrain:\n  epochs: 1\n  epochs: 2\n", "line 4: epochs is there again: line 3 has it, too"),
        ("graph: {}\ntrain: {}\ngraph: {}\n", "line 3: graph is there again: line 1"),
        ("a: [{b: 1}, {c: 1,\n c: 1}]\n", "line 2: c is there again: line 1"),
        ('{"a": {"b": 1,\n"b": 1}}', "line 2: b is there again: line 1"),
        ("a: &x {b: 1, b: 1}\nc: *x\n", "line 1: b is there again: line 1"),
    ],
)
def test_duplicate_key_is_refused(tmp_path, content, message):
    (tmp_path / "mine.yaml").write_text(content)
    with pytest.raises(InputError, match=f"mine.yaml: {message}"):
        refuse_repeats(tmp_path / "mine.yaml")


@pytest.mark.parametrize("content", ["", "a: &x {b: 1}\nc: [*x, *x, b]\nb: {b: 1}\n1: 1\n'1': 1\n", "a: [", "x"])
def test_files_without_duplicate_keys_are_read(tmp_path, content):
    (tmp_path / "mine.yaml").write_text(content)
    refuse_repeats(tmp_path / "mine.yaml")


def test_shipped_configs_have_no_duplicate_keys():
    for file in [*(ROOT / "config").rglob("*.yaml"), *(ROOT / "profiles").rglob("*.yaml")]:
        refuse_repeats(file)


def test_models_by_path_are_named_after_their_files():
    values = {"train": {"models": ["./a/b.py"], "sides": {"unfused": ["b"]}}}
    assert config.validate(values).train.sides == {"unfused": ["b"]}
    assert {"mgg", *get_args(config.OtherSide)} == {*get_args(Side)}
