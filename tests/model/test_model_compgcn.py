"""CompGCN against its formula in PyTorch, arc by arc, with the correlation by Fourier transforms."""

from functools import partial

import pytest
from support import pyg
from support.pyg import Reference, torch

from mgg.errors import InputError
from mgg.model import build, settings_of

pytestmark = pytest.mark.slow
COLUMNS, LAYERS, BASES = 6, 3, 2
SETTINGS = {"hidden": COLUMNS, "layers": LAYERS, "dropout": 0.0}
COMPOSITIONS = {
    "sub": torch.sub,
    "mult": torch.mul,
    "corr": lambda x, z: torch.fft.irfft(torch.fft.rfft(x).conj() * torch.fft.rfft(z), n=COLUMNS),
}


def parameter(*shape):
    return torch.nn.Parameter(torch.empty(shape))


def compgcn(facts, composition="corr", bases=0, inverses=True, normalization="none") -> Reference:
    names, types = {"embedding.weight": parameter(facts.features or facts.nodes, COLUMNS)}, facts.relations
    names |= {"embedding.bias": parameter(COLUMNS)} if facts.features else {}
    names["relations.rows"] = parameter(bases or types, COLUMNS)
    names |= {"relations.coefficients": parameter(types, bases)} if bases else {}
    names["relations.weight"] = parameter(LAYERS - 1, COLUMNS, COLUMNS)
    norms = [torch.nn.BatchNorm1d(COLUMNS) for _ in range(LAYERS - 1)]
    for k in range(LAYERS):
        outputs = COLUMNS if k < LAYERS - 1 else facts.classes
        matrices = ("W_O", "W_I", "W_S") if inverses else ("W_O", "W_S")
        names |= {f"layer{k}.{each}": parameter(COLUMNS, outputs) for each in matrices}
        names[f"layer{k}.z_loop"] = parameter(COLUMNS)
        if k < LAYERS - 1 and normalization == "batch":
            names |= {f"layer{k}.norm.scale": norms[k].weight, f"layer{k}.norm.shift": norms[k].bias}
        else:
            names[f"layer{k}.bias"] = parameter(outputs)
    compose = COMPOSITIONS[composition]

    def forward(x, arcs):
        (source, target), kinds = arcs.edge_index, arcs.edge_type
        degree = torch.zeros(facts.nodes).index_add(0, target, torch.ones(len(target)))
        scale = degree.clamp(min=1e-30) ** -0.5 * (degree > 0)
        scale = (scale[source] * scale[target])[:, None]
        h = names["embedding.weight"]
        h = x @ h + names["embedding.bias"] if facts.features else h
        z = names["relations.rows"]
        z = names["relations.coefficients"] @ z if bases else z
        for k in range(LAYERS):
            own = {each: names.get(f"layer{k}.{each}") for each in ("W_O", "W_I", "W_S", "z_loop")}
            messages = compose(h[source], z[kinds])
            back = kinds >= types // 2 if inverses else torch.zeros_like(kinds, dtype=bool)
            there = messages @ own["W_O"]
            messages = torch.where(back[:, None], messages @ own["W_I"], there) if inverses else there
            found = compose(h, own["z_loop"]) @ own["W_S"]
            h = found.index_add(0, target, scale * messages)
            if k == LAYERS - 1:
                return h + names[f"layer{k}.bias"]
            h = (norms[k](h) if normalization == "batch" else h + names[f"layer{k}.bias"]).relu()
            z = z @ names["relations.weight"][k]

    state = {}
    if normalization == "batch":
        for k, norm in enumerate(norms):
            state |= {
                f"layer{k}.norm.running_mean": norm.running_mean,
                f"layer{k}.norm.running_variance": norm.running_var,
            }
    return Reference(forward, names, state)


@pytest.mark.parametrize("pes", pyg.PES)
@pytest.mark.parametrize(
    ("graph", "options"),
    [
        ("paired, no features", {"composition": "corr", "bases": BASES}),
        ("paired", {"composition": "mult", "normalization": "batch"}),
        ("typed", {"composition": "sub", "inverses": False}),
    ],
)
def test_compgcn(graph, options, pes, oracle_layouts):
    settings = SETTINGS | {"bases": 0, "normalization": "none"} | options
    pyg.check("compgcn", settings, partial(compgcn, **options), oracle_layouts(graph, pes), pes)


@pytest.mark.parametrize(("types", "message"), [(0, "have no types"), (5, "5 types of arcs are no relations and as m")])
def test_other_types_are_refused(types, message):
    with pytest.raises(InputError, match=message):
        build("compgcn", settings_of("compgcn"), 4, 3, 9, types)
