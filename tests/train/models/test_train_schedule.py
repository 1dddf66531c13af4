"""The schedule of programs' gradients: what is asked for, what the cost model picks, what a run is."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from support.graphs import make_layout
from support.programs.train_program import run
from support.ranks.stopped import stop_at

from mgg import layout
from mgg.cli.products.predict import predict
from mgg.cost.machines import H200
from mgg.cost.product import SplitCounts
from mgg.errors import InputError
from mgg.graph.csr import from_arcs
from mgg.model import build, find, settings_of
from mgg.model.module import Given
from mgg.model.program import programs_of
from mgg.model.program.schedules import columns_of, picked, spent
from mgg.train.model import built
from mgg.vertex.ir import D, S, walk

OWN = """from mgg import vertex as V
from mgg.model.module import Chain
from mgg.model.program import VertexLayer, Weight
from mgg.model.settings import LayeredSettings as Settings


@V.program
def ones(v, W):
    return V.sum(u.x @ W for u in v.innbs)


def build(settings, sizes):
    shapes = [(sizes.features, 6), (6, 7), (7, sizes.classes)]
    return Chain(*(VertexLayer(f"l{k}", ones, each[0], {"W": Weight(each)}) for k, each in enumerate(shapes)))
"""


@pytest.fixture
def job(tmp_path):
    """Three layers of plain sums, of which the first one's input never changes: nothing of it goes home."""
    (tmp_path / "own.py").write_text(OWN, encoding="utf-8")
    rows = np.concatenate([np.repeat(np.arange(4), 20), [23]])
    columns = np.concatenate([np.tile(np.arange(4, 24), 4), [0]])
    data = {
        "features": np.random.default_rng(0).random((24, 5)).astype(np.float32),
        "labels": (np.arange(24) // 3 % 3).astype(np.int32), "splits": (1 + np.arange(24) % 3).astype(np.uint8),
    }  # fmt: skip
    csr = from_arcs(rows, columns, n=24)
    folder = make_layout(tmp_path / "layouts", csr, 2, **data)
    return folder, {"model": str(tmp_path / "own.py"), "technique": "halo", "epochs": 12}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (
            "turned,return,turned",
            "backward=turned,return,turned: these are 3 schedules, and model own takes 2: .* l1, l2$",
        ),
        ("return,back", "setting of model own: backward: 'return,back' is none of return, turned, auto, or one of the"),
    ],
)
def test_unsupported_schedules_are_refused(value, said, job):
    with pytest.raises(InputError, match=said):
        run("simulated", job[0], 2, settings={"backward": value}, **job[1])


def test_chosen_schedule_is_part_of_the_run(job, tmp_path, monkeypatch, caplog):
    folder, options = job
    picks = ["turned"]
    monkeypatch.setattr("mgg.train.resolve_auto.picked", lambda *_: picks * 2)
    monkeypatch.setattr("mgg.train.resolve_auto.of_world", lambda _: H200)
    given = {"settings": {"backward": "auto"}, "out": tmp_path / "run", **options}
    stop_at(2, folder, 2, **given)
    assert "backward auto: picks l1 turned, l2 turned" in caplog.text
    picks[0] = "return"
    found = run("simulated", folder, 2, resume=True, **given)[0].record
    assert found.settings["backward"] == "turned"
    forced = run("simulated", folder, 2, settings={"backward": "turned"}, **options)[0].record
    assert forced.loss == found.loss
    named = run("simulated", folder, 2, settings={"backward": "return,turned"}, **options)[0].record
    assert named.settings["backward"] == "return,turned" and named.loss == pytest.approx(found.loss)
    with pytest.raises(InputError, match="whose setting backward is turned, this run has return"):
        run("simulated", folder, 2, resume=True, out=tmp_path / "run", settings={"backward": "return"}, **options)


def test_kernel_options_are_ignored_on_cpus_with_a_note(job, caplog):
    folder, options = job
    usual = run("simulated", folder, 2, **options)[0].record
    assert "kernels" not in caplog.text and usual.settings["kernels"] is None
    found = run("simulated", folder, 2, settings={"kernels": "rows=sorted,groups=block"}, **options)[0].record
    assert caplog.text.count("setting kernels=groups=block,rows=sorted: is for GPUs; on CPUs it changes nothing") == 1
    assert found.settings["kernels"] == "groups=block,rows=sorted" and found.loss == usual.loss


def test_arc_parallel_kernels_take_predicted_memory():
    """Of an arc what it adds: gatv2's sums a head, a maximum, a denominator and columns of 8, padded to 16 bytes; and
    where it is, in both lists of arcs."""
    arcs = {}
    for kernels in (None, "arcs=parallel"):
        settings = settings_of("gatv2", {"heads": 2, "hidden": 8, "kernels": kernels})
        (layer, *_) = programs_of(built(find("gatv2"), settings, 16, 3, 100, 0, fused=True))
        arcs[kernels] = layer.memory(16, Given(0, 0, arcs=1, gpu=True)).peak
    assert arcs["arcs=parallel"] >= arcs[None] + 4 + 4 + 16 + 2 * 5


def split(halo):
    counts = np.array([10**7, 10**7])
    none = np.zeros(1, np.int64)
    return SplitCounts(counts, 10 * counts, 5 * counts, np.array(halo), 2, 0, 0, none)


def test_schedule_with_fewer_crossing_bytes_is_chosen():
    """GATv2 gives gradients of 8 columns a head back, by the scores and by the sum together. Turned it fetches of each
    target the gradient over the sum of its softmax, the projection, and 2 numbers a head: largest score and mean
    gradient.
    """
    chain = build("gatv2", settings_of("gatv2", {"heads": 2}), 64, 3)
    layer = programs_of(chain)[0]
    home, turned = (columns_of(chain, layer, name) for name in ("return", "turned"))
    assert (home.halo, home.arcs) == (2 * 8, 0)
    assert (turned.halo, turned.arcs) == (2 * (8 + 8 + 2), 0)
    few, many = split([10**5, 10**5]), split([9 * 10**6, 9 * 10**6])
    assert picked(chain, {"return": many, "turned": few}, H200)[0] == "turned"
    assert picked(chain, {"return": few, "turned": many}, H200)[0] == "return"
    costs = [spent(home, "return", {"return": each}, H200).cost for each in (few, many)]
    link = H200.links["nvlink"]
    assert costs[1].transfer - costs[0].transfer == pytest.approx(
        89 * 10**5 * (link.message + 4 * home.halo / link.bandwidth)
    )


def test_first_layer_returns_no_input_gradients():
    """Its matrices' gradients are sums over the copies of rows that every PE has."""
    layer = programs_of(build("gatv2", settings_of("gatv2", {"heads": 2}), 6, 3))[0]
    plan = layer.plan(training=True, gradients=True)
    home = [v for v in plan.values if v.op == "total" and (v.inputs[0].space, v.space) == (S, D)]
    without_x = walk([value for name, value in plan.by.items() if name != "x"])
    assert [v.size for v in home] == [6] and not {*home} & {*without_x}


def test_predict_lists_every_layer_and_pe(job):
    """Rows of a layer of plain sums without a plan: forward they come as wide as the matrix leaves them."""
    folder, options = job
    done = CliRunner().invoke(predict, [str(folder), "--model", options["model"], "--json"])
    assert done.exit_code == 0, done.output
    passes = json.loads(done.output)["passes"]
    described = [(each["layer"], each["pass"], each["backward"]) for each in passes]
    assert described[:2] == [("l0", "forward", None), ("l0", "backward", None)]
    assert described[2:5] == [("l1", "forward", None), ("l1", "backward", "return"), ("l1", "backward", "turned")]
    facts = layout.read_manifest(folder)
    halos = {"return": facts.forward.halo_rows, "turned": facts.transpose.halo_rows}
    for each in passes[3:5]:
        assert each["bytes"] == [4 * 6 * rows for rows in halos[each["backward"]]]
    assert passes[2]["bytes"] == [4 * 6 * rows for rows in facts.forward.halo_rows]
    assert all(min(each["seconds"]) > 0 for each in passes if each["layer"] != "l0")
    picks = [each["backward"] for each in passes if each["layer"] == "l1" and each["backward"] and each["chosen"]]
    assert len(picks) == 1
    done = CliRunner().invoke(predict, [str(folder), "--model", options["model"], "--dim", "8"])
    assert isinstance(done.exception, InputError) and "--dim: does not apply to a model" in str(done.exception)


@pytest.mark.parametrize(
    ("model", "settings", "columns"),
    [
        # Gradients of scores, a number a head, are added to those of the rows that they are linear in.
        ("gat", {"heads": 2, "hidden": 8, "output_heads": 1}, [2 * 8, 3]),
        # Of keys and values together: rows of two heads of 8; the last layer has fewer, of keys and of values.
        ("transformer", {"heads": 2, "hidden": 8}, [2 * 2 * 8, 2 * 8, 2 * 2 * 3]),
        # Of what the gate and the sum read of one row of 70.
        ("gatedgcn", {}, [70] * 4),
    ],
)
def test_returned_rows_are_as_narrow_as_fetched_rows(model, settings, columns):
    chain = build(model, settings_of(model, settings), 64, 3)
    assert [columns_of(chain, layer, "return").halo for layer in programs_of(chain)] == columns
