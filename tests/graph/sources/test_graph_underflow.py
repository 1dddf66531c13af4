"""Decimal numbers below those of float64 are no zeros: weights and ids that would become 0 are refused, 0 is not."""

import gzip

import networkx
import pytest
from text_helpers import arcs_of, exhaust, load

from mgg.errors import InputError

#: Not 0, and 0 as float64; what all of them are as float64 is told by Python.
TINY = ("1e-400", "-2.5E-0325", "+1e-400", "0." + "0" * 400 + "1", "0." + "0" * 230 + "1e-99", ".7e-99999999")
ZEROS = ("0", "-0", "0.0", "0e5", "0E-400", "0." + "0" * 400, "0e-99999999")
SMALL = "too small for a float32, which would hold 0"
MTX = "%%MatrixMarket matrix {} real general\n3 3"
GML = "graph [\n{}{}  edge [ source 0 target 1 weight 1.5 ]\n  edge [ source 1 target 2 weight NUMBER ]\n]\n"
NODES = "".join(f"  node [ id {node} ]\n" for node in range(3))
GRAPHML = (
    '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
    '<key id="d0" for="edge" attr.name="weight" attr.type="KIND"/><graph edgedefault="directed">'
    '<node id="0"/><node id="1"/><node id="2"/><edge source="0" target="1"><data key="d0">1.5</data></edge>'
    '<edge source="1" target="2"><data key="d0">NUMBER</data></edge></graph></graphml>'
)
#: Loader, file, text with a weight NUMBER of the arc 1 -> 2, and where that stands; another weight is 1.5.
TEXTS = {
    "csv": ("table", "a.csv", "source,target,weight\n0,1,1.5\n1,2,NUMBER\n", "line 3: weight is"),
    "quoted": ("table", "a.csv", 'source,target,weight\n0,1,"1.5"\n# so\n1,2,"NUMBER"\n', "line 4: weight is"),
    "spaces": ("table", "a.tsv", "source target weight\n0  1 1.5\n1   2\tNUMBER\n", "line 3: weight is"),
    "networkx": ("snap", "a.txt", "0 1 {'weight': 1.5}\n1 2 {'weight': NUMBER}\n", "line 2: weight is"),
    "konect": ("snap", "a.txt", "% asym positive\n1\t2\t1.5\n2\t3\tNUMBER\n", "line 3: weight is"),
    "named": ("snap", "a.txt", "# source target weight\n0\t1\t1.5\n1\t2\tNUMBER\n", "line 3: weight is"),
    "semicolons": ("table", "a.csv", "source;target;weight\n0;1;1,5\n1;2;NUMBER\n", "line 3: weight is"),
    "coordinate": ("matrix_market", "a.mtx", MTX.format("coordinate") + " 2\n2 1 1.5\n3 2 NUMBER\n", "4: value is"),
    "array": ("matrix_market", "a.mtx", MTX.format("array") + "\n0\n1.5\n0\n0\n0\nNUMBER\n0\n0\n0\n", "8: value is"),
    "metis": ("metis", "a.graph", "3 2 001\n2 1.5\n1 1.5 3 NUMBER\n2 NUMBER\n", "line 3: a weight is"),
    "gml": ("networkx", "a.gml", GML.format("  directed 1\n", NODES), "a weight is"),
    "graphml": ("networkx", "a.graphml", GRAPHML.replace("KIND", "double"), "a weight is"),
    "words": ("networkx", "a.graphml", GRAPHML.replace("KIND", "string"), "a weight is"),
}  # fmt: skip


@pytest.fixture(params=TEXTS)
def weighted(request, tmp_path):
    """Loader, a function that writes the file with a weight, and where this is said to be."""
    loader, name, text, place = TEXTS[request.param]
    if loader == "networkx":
        pytest.importorskip("networkx")

    def write(number, packed=False):
        if name == "a.gml" and "." not in number:  # whose reals have a point
            number = number.lower().replace("e", ".e")
        path, data = tmp_path / name, text.replace("NUMBER", number).encode()
        if packed:
            path, data = path.with_name(f"{name}.gz"), gzip.compress(data)
        path.write_bytes(data)
        return path

    return loader, write, place


def test_weight_below_float64_is_refused_and_zero_is_not(weighted):
    loader, write, place = weighted
    for number in TINY:
        assert float(number) == 0
        with pytest.raises(InputError) as refused:
            exhaust(loader, write(number, packed=number == TINY[0]))
        message = str(refused.value)
        shown = number.lower().lstrip("+-").replace("1e", "")[:30]
        assert place in message and shown in message.lower() and message.endswith(SMALL), message
    for number in ZEROS:
        weights = [weight for *_, weight in arcs_of(load(loader, write(number)).arcs)]
        assert max(weights) == 1.5
        assert 0 in weights or place.startswith("8")  # a dense matrix has arcs where it is not 0
    with pytest.raises(InputError, match="inf, not a finite float32") as refused:
        exhaust(loader, write("-1e400"))
    assert "line" not in place or place in str(refused.value)


@pytest.mark.parametrize("number", ["1e-400", "0." + "0" * 400 + "1"])
def test_ids_and_labels_below_float64_are_refused(number, tmp_path):
    (tmp_path / "edges.csv").write_text(f"source,target\n0,1\n1,{number}\n")
    with pytest.raises(InputError, match=r"line 3: target is .*, not a whole number"):
        exhaust("table", tmp_path)
    (tmp_path / "edges.csv").write_text(f"source,target\n0,1\n1,{ZEROS[-2]}\n1,0e7\n0,1.{'0' * 400}\n")
    (tmp_path / "nodes.csv").write_text(f"label,x\n0,1\n{number},1\n")
    with pytest.raises(InputError, match=r"line 3: label is .*; expected a whole number from 0"):
        exhaust("table", tmp_path)
    (tmp_path / "nodes.csv").write_text("label,x\n0e9,1\n1,1\n")
    assert load("table", tmp_path).labels.tolist() == [0, 1]
    assert arcs_of(load("table", tmp_path).arcs) == [(0, 1), (1, 0), (1, 0), (0, 1)]


@pytest.mark.parametrize("form", ["gml", "graphml"])
def test_node_ids_are_not_checked_as_weights(form, tmp_path):
    graph = networkx.Graph()
    graph.add_node(0, weight=1e-300, other=1.5)
    graph.add_edge(0, 1, weight=0.0)
    path = tmp_path / f"a.{form}"
    (networkx.write_gml if form == "gml" else networkx.write_graphml)(graph, path)
    written = "1.E-300" if form == "gml" else "1e-300"
    assert path.read_text().count(written) == 1
    path.write_text(path.read_text().replace(written, "1e-400"))
    assert [part.weights.tolist() for part in load("networkx", path).arcs.read()] == [[0.0]]
    text = path.read_text()
    at = text.rindex("0.0")
    path.write_text(f"{text[:at]}1.e-400{text[at + 3 :]}")
    with pytest.raises(InputError, match=r"a weight is 1\.e-400, too small"):
        load("networkx", path)


def test_gml_reals_have_a_point(tmp_path):
    (tmp_path / "a.gml").write_text(GML.format("  directed 1\n", NODES).replace("NUMBER", "1e-5"))
    with pytest.raises(InputError, match=r"a number such as 1e-5 is none of GML, which wants a point: write 1\.0e-5"):
        load("networkx", tmp_path / "a.gml")
