"""The page: complete, self-contained, escaped, and honest about what the records are worth."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml
from synthetic_records import MACHINE, OTHER, aggregate, epochs, split, sweep, train, words, write_all

import mgg.report
from mgg.aggregate import all_techniques

PAGE = Path(mgg.report.__file__).parent / "page"
VOID = {"meta", "br", "hr", "img", "input", "link"}
ALLOWED_LINK = re.compile(r"^(#[\w-]+|\w+\.(csv|parquet))$")


class Page(HTMLParser):
    """Elements, ids, text and nesting of a page."""

    def __init__(self, text: str, plain: bool = False) -> None:
        """``plain``: without links and hints, so that words around them stay together."""
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(re.sub(r"</?(a|abbr)\b[^>]*>", "", text) if plain else text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The page of a whole experiment."""
    folder = tmp_path_factory.mktemp("whole")
    mgg.report.build(write_all(folder / "in"), folder / "out", "Whole")
    return (folder / "out" / "index.html").read_text(encoding="utf-8")


def test_nothing_is_fetched_from_elsewhere(whole):
    page = Page(whole)
    assert not {tag for tag, _ in page.elements} & {"script", "link", "img", "iframe", "object", "embed", "base"}
    for tag, attributes in page.elements:
        assert not {"src", "srcset", "data", "action"} & set(attributes), tag
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            if name == "href":
                assert ALLOWED_LINK.match(value or ""), value
            elif not name.startswith("xmlns"):
                assert "://" not in (value or ""), (tag, name, value)
    assert "@import" not in whole
    assert not re.search(r"url\((?!#)", whole)


def test_ids_are_unique_and_every_reference_has_its_target(whole):
    page = Page(whole)
    ids = Counter(attributes["id"] for _, attributes in page.elements if "id" in attributes)
    assert [name for name, times in ids.items() if times > 1] == []
    wanted = set(re.findall(r"url\(#([^)]*)\)", whole))
    wanted |= {a["href"][1:] for _, a in page.elements if (a.get("href") or "").startswith("#")}
    assert wanted <= set(ids)


def test_headings_captions_and_figures_are_accessible(whole):
    page = Page(whole)
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert len(page.named("caption")) == len(page.named("table"))
    assert len(page.named("figcaption")) == len(page.named("svg")) == len(page.named("figure"))
    assert all(len(svg["aria-label"]) > 40 and svg["role"] == "img" for svg in page.named("svg"))
    assert page.named("html")[0]["lang"] == "en"


def rule(page, selector):
    """What the style sheet says of ``selector``, all of its rules together."""
    sheet = re.sub(r"(?s)/\*.*?\*/", "", re.search(r"(?s)<style>(.*?)</style>", page)[1])
    rules = re.findall(r"([^{}]+)\{([^{}]*)\}", sheet)
    return " ".join(body for names, body in rules if selector in names.strip().split(", "))


def test_tables_scroll_in_their_window_and_captions_stay_in_it(whole):
    assert whole.count("<caption><span>") == whole.count("<caption>") == whole.count('<div class="scroll"') > 10
    assert "100cqw" in rule(whole, "caption span") and "sticky" in rule(whole, "caption span")
    scroll = rule(whole, ".scroll")
    assert "container-type: inline-size" in scroll
    # The hint that a table goes on: two shadows at the edges, two covers that move with the content.
    assert scroll.count("no-repeat local") == scroll.count("no-repeat scroll") == 2
    # What covers the whole width of a row lets them through.
    for selector in (".group th", ".best"):
        assert "transparent" in rule(whole, selector)


def test_names_of_replaced_graphs_wrap(page):
    text = page([aggregate(dataset="products-like")])
    assert '<th scope="col" class="text">stands for</th>' in text
    assert '<td class="text">ogbn-products<small>2,449,029 nodes' in text
    assert "white-space: normal" in rule(text, "td.text") and "text-align: left" in rule(text, ".text")
    # A cell that does not wrap is never narrower than its words, which would stick out of the table.
    assert "max-width" not in rule(text, "td")


def test_figures_take_their_colors_from_the_page(whole):
    svgs = re.findall(r"<svg.*?</svg>", whole, re.S)
    # The first screen's; 2 graphs: time and scaling for 2 widths, bytes for one; 2 models: both losses and accuracy.
    assert len(svgs) == 2 + 2 * 5 + 2 * 3
    for svg in svgs:
        assert not re.search(r"#[0-9a-f]{6}\b(?!\))", re.sub(r'(id|href)="[^"]*"|url\([^)]*\)', "", svg)), svg[:200]
    used = set(re.findall(r"var\((--\w+)\)", whole))
    assert all(whole.count(f"{name}:") == 2 for name in used), "each color once for light, once for dark"


def test_main_findings_come_first(whole):
    text = Page(whole, plain=True).text
    assert "MGG trains graph neural networks" in text
    assert "48 timings of one aggregation: 4 techniques (broadcast, cola, halo and mgg)" in text
    # 2 graphs, 2 widths, 2 and 4 PEs, of which 4 take turns; 1 moves nothing.
    assert "of 8 comparisons of several PEs: the slowest of its launches" in text
    assert re.search(r"No star in .* PEs: more PEs than cores in 4( and launches overlap in \d)?\.", text)
    assert "Can I trust it 48 of 48 results right, 2 cautions" in text
    assert "cola and halo moved each row that a PE needs exactly once (V_FC)" in text
    assert "broadcast moved exactly all rows to all PEs (V_CG)" in text
    assert "48 of 48 agree with a float64 product" in text
    assert "81.3 ± 0.3 % of the test nodes right (gcn, mean of 3 seeds" in text
    assert "Runs with 4 PEs had more PEs than the 2 cores of machine M1" in text
    assert "10 partitions (edge_balanced) of cora and digits, over 2, 4, 8, 16 and 32 PEs." in text
    for term in ("PE", "Halo", "V_CG", "V_FR", "V_FC", "VI_CoLa", "Workgroup", "Speedup, efficiency"):
        assert re.search(f"<dt[^>]*>{term}</dt>", whole), term


def test_names_of_volumes_and_machines_link_to_definitions(whole):
    """Whoever starts at the top meets no name that is not a link to its meaning; tables and figures come later."""
    top = whole[whole.index("<main>") : whole.index('<section id="graph-1">')]
    top = re.sub(r"(?s)<svg.*?</svg>", "", top)
    told = re.findall(r'(?:<a href="#([\w-]+)"[^>]*>)?(?:machine )?\b(VI?_(?:CG|FR|FC|CoLa)|M\d)\b', top)
    assert {name for _, name in told} == {"V_CG", "V_FR", "V_FC", "VI_CoLa", "VI_FC", "M1"}
    for target, name in told:
        assert target == ("where" if name == "M1" else f"term-{name.lower().replace('_', '-')}")
    terms = whole[whole.index('<section id="terms">') :]
    for name in ("V_CG", "V_FR", "V_FC", "V_cover", "VI_CG", "VI_FR", "VI_FC", "VI_CoLa"):
        assert f'id="term-{name.lower().replace("_", "-")}">{name}</' in terms, name


def timings(pes=(2,), **seconds):
    """Of techniques by their launches."""
    return [aggregate(technique=name, pes=p, seconds=each) for name, each in seconds.items() for p in pes]


def test_fastest_is_marked_in_table_and_figure(page, drawn):
    text = page(timings(halo=[1e-3] * 3, cola=[3e-3] * 3))
    assert re.findall(r'<td class="best">★ ([\d.]+)', text) == ["1.00"]
    # In the first screen's figure, too.
    assert re.findall(r"<text[^>]*>([^<]*★[^<]*)</text>", text) == ["1.00 ★ fastest"] * 2
    assert "★ halo, 1.00 ms<small>cola, 3.00x</small>" in text
    assert "halo in 1 of 1 comparison of several PEs: the slowest of its launches was faster" in text
    assert "halo, in 1 of 1" in text and "No star" not in text


def test_fastest_must_be_outside_the_spread(page, drawn):
    text = page(timings(halo=[0.9e-3, 1e-3, 1.1e-3], cola=[1e-3, 1.02e-3, 1.1e-3], mgg=[3e-3] * 3))
    assert 'class="best"' not in text
    assert re.findall(r"<td>≈ ([\d.]+)", text) == ["1.02", "1.00"]
    assert re.findall(r"<text[^>]*>([^<]*[★≈][^<]*)</text>", text) == ["1.02 ≈", "1.00 ≈"] * 2
    assert "No star in 1 of 1 comparison of several PEs: launches overlap in 1." in text
    assert '<td title="launches overlap">≈ halo, 1.00 ms<small>cola, 1.02x</small>' in text


def test_no_fastest_technique_on_one_pe(page):
    """Nothing moves there: neither a mark nor a finding, beside runs of several PEs or alone."""
    alone = timings((1,), halo=[1e-3], cola=[3e-3])
    text = page(alone)
    assert 'class="best"' not in text and not re.search("<td[^>]*>[★≈]", text)
    assert "With 1 PE alone no technique moves anything" in text
    assert "Fastest of each comparison" not in text
    text = page([*alone, *timings(halo=[2e-3] * 3, cola=[1e-3] * 3)])
    assert "cola in 1 of 1 comparison" in text
    assert "halo, 1.00 ms" not in text[: text.index('<section id="graph-1">')]


def test_oversubscribed_pes_have_no_fastest(page):
    text = page(timings((1, 4), halo=[1e-3] * 3, cola=[3e-3] * 3))
    assert 'class="best"' not in text and not re.search("<td[^>]*>[^<]*★", text)
    assert "No star in 1 of 1" in text and "PEs: more PEs than cores in 1." in text
    assert "<strong>Products on several PEs</strong>: Not measured: every one had more PEs than cores.</li>" in text


def test_texts_from_records_are_escaped(page, drawn):
    evil = "<script>alert('x')</script>$x^2${{7*7}}&amp;\"'"
    changes = {"dataset": evil, "technique": f"{evil}T", "options": {"<b>": evil}}
    records = [aggregate(**changes, pes=p) for p in (1, 2)] + [aggregate(**changes | {"technique": "halo"}, pes=2)]
    machine = MACHINE.model_copy(update={"cpu": evil})
    text = page(records, runs=[train(**changes | {"model": evil}, machine=machine, epochs=2)], title=evil)
    assert not {tag for tag, _ in Page(text).elements} & {"script", "b"}
    assert Page(text).text.count("alert('x')") > 10
    assert "{{7*7}}" in text
    assert "&lt;script&gt;alert" in text


def scores(validation, model="gcn", **changes):
    """A run of two models; the better one on the test nodes is the worse on the validation nodes."""
    shown = {"gcn": (0.8, 0.7), "gin": (0.9, 0.6)}
    return [
        train(model=model, test_accuracy=test, validation_accuracy=seen if validation else None, epochs=1, **changes)
        for model, (test, seen) in shown.items()
    ]


MORE = [run for n in range(1, 5) for run in scores(True, dataset=f"graph {n}", graph_hash=f"{n:064x}")]


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        (scores(True), "80.0 % of the test nodes right (gcn, one seed, 2 PEs; the best on the validation nodes)."),
        (scores(False), "80.0 to 90.0 % of the test nodes right (gcn and gin, 2 PEs; no validation nodes to choose"),
        (scores(True) + MORE, "80.0 % to 80.0 % on the test nodes, of each graph the best run on its validation nodes"),
        (scores(False) + MORE, "best run on its validation nodes; all runs of 1 graph without such nodes."),
    ],
)
def test_runs_are_chosen_by_validation_nodes(page, runs, said):
    assert said in words(page(runs=runs))


#: As a least cover moves; whoever moves less in one case and as much in another fits none.
LESS = [
    aggregate(options={"split": "cover"}, bytes_wire=95_000, bytes_per_pe=[]),
    *(aggregate(technique="odd", dim=d, bytes_wire=moved, bytes_per_pe=[]) for d, moved in ((16, 9), (32, 97_000))),
]
BETTER = split(scheme="metis")
BETTER = BETTER.model_copy(update={"quality": BETTER.quality.model_copy(update={"v_fc": 640})})
SHORT = train(epochs=5)
UNSEEN = [epoch.model_copy(update={"validation_accuracy": None, "validation_loss": None}) for epoch in epochs(SHORT)]
ON_GPUS = {"backend": "nvshmem", "machine": MACHINE.model_copy(update={"gpus": ["NVIDIA H200"] * 2})}
MANY = [train(technique=f"t{t}", pes=pes, epochs=3) for t in range(3) for pes in (1, 2, 4)]


@pytest.mark.parametrize(
    ("records", "others", "shown", "hidden"),
    [
        ([], {"runs": [SHORT, train(seed=1, epochs=1)]}, ["Training on cora", "cora: validation accuracy."],
         ["Result checks", "Fastest"]),
        ([], {"runs": [(SHORT.model_copy(update={"validation_accuracy": None}), UNSEEN)]}, ["training loss."],
         ["validation accuracy.", "validation loss."]),
        ([], {"runs": MANY}, ["t0, all numbers of PEs"], []),
        (sweep(graphs=["cora"], dims=[16]), {}, ["Graph cora"], ["training run:", "Accuracy on"]),
        (LESS, {}, ["halo moved less than each row that a PE needs once (V_FC)",
                    "odd moved none of these volumes (V_FC, V_FR, V_CG) in every case"], []),
        ([aggregate(graph_hash=split().graph_hash, pes=2)], {"splits": [split(pes=2)]}, [],
         ["How each graph was split"]),
        ([aggregate(graph_hash=split().graph_hash, direction="transpose"), aggregate(graph_hash="ef" * 32)],
         {"splits": [split(pes=2)]}, ["2 PEs, edge_balanced, transpose", "2 PEs, edge_balanced, forward"], []),
        ([], {"splits": [split(), BETTER]}, ["4 PEs, metis: V_FC is 0.1 % of V_CG, less than edge_balanced."], []),
        ([aggregate(pes=1, bytes_wire=0)], {}, [], ["★ halo", "Bytes on the wire V_CG"]),
        ([aggregate(pes=2), aggregate(pes=4)], {}, ["There is no sound time with 1 PE to compare with"], []),
        ([aggregate(graph_hash=code * 32) for code in ("ab", "cd")], {},
         ["Graph cora (abababab)", "Graph cora (cdcdcdcd)"], []),
        ([aggregate(pes=1), aggregate(pes=1, machine=OTHER)], {}, ["These records come from 2 machines"], []),
        ([aggregate(pes=8)], {}, ["Runs with 8 PEs had more PEs than the 2 cores of machine M1"], []),
        ([aggregate(error=None, tolerance=None)], {}, ["1 timing came without a check"], []),
        ([aggregate(error=1.0)], {}, ["1 result failed the check"], []),
        ([aggregate(backend="simulated")], {}, ["threads of one process"], []),
        ([aggregate(backend="mpi")], {}, ["another technique can be the fastest in it"], []),
        ([aggregate(pes=1, **ON_GPUS), aggregate(pes=2, **ON_GPUS)], {}, ["no cautions"], []),
    ],
)  # fmt: skip
def test_page_shows_the_records(page, records, others, shown, hidden):
    made = page(records, **others)
    text = words(made)
    assert [each for each in shown if each not in text + made] == [each for each in hidden if each in text] == []


def test_page_of_partitions_alone(page):
    text = page(splits=[split(pes=pes, workgroup=4) for pes in (1, 2, 4, 8)])
    shown = Page(text).text
    assert "Machines and software" not in shown and "What ran where" not in shown
    assert "Read with care" not in shown
    assert "Partitions" in shown
    row = re.search(r'<tr><th scope="row">4</th>(.*?)</tr>', text)
    cells = re.findall(r"<td[^>]*>([^<]*)", row[1])
    # Imbalance, 630 arcs, 210 rows; V_CG = 4 x 2708 x 16 x 3, V_FR = 64 x 630, V_FC = 64 x 210 bytes; V_cover, of no
    # partition, has no column.
    assert cells == ["1.00", "630", "210", "0.496", "0.0385", "0.0128", "-", "-", "-", "-"]
    assert "66.7 %" in row[1] and "97.4 %" in row[1]
    eight = re.search(r'<tr><th scope="row">8</th>(.*?)</tr>', text)
    assert re.findall(r"<td[^>]*>([^<]*)", eight[1])[6] == "0.661"  # 4 n D (P - G) = 4 x 2708 x 16 x 4


def test_pairs_of_pes_are_a_table_or_heat_map(page):
    text = page(splits=[split(pes=pes) for pes in (2, 4, 16, 32)])
    assert "16 PEs: rows that each PE (left) needs of each owner (top)" in text
    assert text.count("rows that each PE (left)") == 2  # its label and its caption
    grid = text[text.index('class="dense"') :]
    grid = grid[: grid.index("</table>")]
    rows = re.findall(r'<tr><th scope="row">(\d+)</th>(.*?)</tr>', grid)
    for pe, row in rows:
        cells = re.findall(r'<td(?: class="heat(\d)" title="([^"]*)")?></td>', row)
        assert [told for _, told in cells] == [
            "" if int(pe) == q else f"PE {pe} needs {10 * int(pe) + q + 1:,} rows of PE {q}" for q in range(16)
        ]
        shades = [int(shade) for shade, told in cells if told]
        assert shades == sorted(shades) and 1 <= shades[0] <= shades[-1] <= 8
    assert len(rows) == 16
    assert set(re.findall(r'class="(heat\d)"', text)) <= set(re.findall(r"\.(heat\d) {", text))


def test_bytes_have_one_unit_everywhere(page, drawn):
    """The same volume, computed from the partition and counted where it moved: the same number."""
    made = split(pes=2)
    moved = {"v_cg": 2_500_000, "v_fr": 5_000_000, "v_fc": 2_000_000}
    made = made.model_copy(update={"quality": made.quality.model_copy(update=moved)})
    same = {"graph_hash": made.graph_hash, "dataset": made.name, "pes": 2, "dim": made.quality.dim}
    text = page([aggregate(**same, technique="broadcast", bytes_wire=2_500_000, **moved)], splits=[made])
    shown = Page(text).text
    assert re.findall(r"[KMG]i?B\b", shown[: shown.index("Units KiB")]).count("MB") == 0
    assert "bytes on the wire of one aggregation (MiB)" in shown
    # Of one product: V_CG under Partitions, of the technique, and of both bars in two figures.
    assert shown.count("2.38") == 6


def test_page_handles_many_techniques_pes_and_widths(page, drawn):
    techniques = [f"technique-with-a-long-name-number-{number}-of-many" for number in range(10)]
    text = page(sweep(techniques, (1, 3), (602,), ["cora"]))
    labels = re.findall(r"<text[^>]*>(technique[^<]*)</text>", text)
    assert max(map(len, labels)) <= 26
    assert len(set(labels)) == 10


def test_contents_come_first_and_long_sections_are_folded(whole):
    assert whole.index("<nav") < whole.index("<main>") < whole.index('<section id="summary">')
    assert "sticky" in rule(whole, "nav") and "sticky" in rule(whole, "tr:not(.group) > th:first-child")
    opened = dict(re.findall(r'<section id="([\w-]+)">\s*<details( open)?>', whole))
    assert {name for name, how in opened.items() if not how} == {"quality", "checks", "where", "terms", "files"}
    assert {name for name, how in opened.items() if how} >= {"graph-1", "train-1"}
    for anchor in re.findall(r'<a href="#([\w-]+)">', whole[whole.index("<nav") : whole.index("</nav>")]):
        assert f'<section id="{anchor}">' in whole


def test_terms_and_techniques_are_explained_in_place(whole):
    """A pointer on a technique or a word of a heading tells what it is; the first section says it in a line, too."""
    told = dict(re.findall(r'<abbr title="([^"]*)">([^<]*)</abbr>', whole))
    words = {word: text for text, word in told.items()}
    assert "hidden behind local sums" in words["halo"] and "slowest launch beat" in words["★"]
    assert whole.count("halo fetches each needed row once per PE") == 1
    assert not re.search(r'title="[^"]*<', whole), "a hint within a hint"
    assert (
        set(all_techniques())
        <= yaml.safe_load((PAGE / "glossary.yaml").read_text(encoding="utf-8"))["techniques"].keys()
    )


def test_points_of_speedups_and_curves_have_hover_values(whole):
    assert re.search(r"<title>halo, 2 PEs: [\d.]+x</title>", whole)
    assert re.search(r"<title>[^<]*, epoch \d+: [\d.]+ %</title>", whole)
    ticks = re.findall(r"<text[^>]*>([^<]*)</text>", whole)
    assert "1x" in ticks and not any(tick.startswith("1/") for tick in ticks)


def test_text_has_the_contrast_of_wcag_aa():
    """Every color of text on every ground that it stands on, shaded cells included, in light and in dark."""
    sheet = (PAGE / "page.css").read_text(encoding="utf-8")
    heats = [int(share) / 100 for share in re.findall(r"\.heat\d \{[^}]*var\(--s0\) (\d+)%", sheet)]
    assert len(heats) == 8

    def mixed(color, ground, share):
        return [share * one + (1 - share) * other for one, other in zip(color, ground, strict=True)]

    def luminance(color):
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in color]
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    def contrast(color, ground):
        low, high = sorted(map(luminance, (color, ground)))
        return (high + 0.05) / (low + 0.05)

    themes = re.findall(r"(?s):root \{(.*?)\}", sheet)
    assert len(themes) == 2
    for theme in themes:
        found = re.findall(r"--([\w-]+): #(..)(..)(..);", theme)
        colors = {name: [int(part, 16) / 255 for part in parts] for name, *parts in found}
        paper, ink = colors["paper"], colors["ink"]
        grounds = [paper, colors["panel"], mixed(ink, paper, 0.05)]
        pairs = [(colors[name], ground) for name in ("ink", "soft", "link") for ground in grounds]
        pairs += [(ink, mixed(colors["s0"], paper, share)) for share in heats]
        pairs += [(ink, mixed(colors["s2"], paper, 0.14))]
        assert min(contrast(*pair) for pair in pairs) >= 4.5
        assert min(contrast(colors[f"s{number}"], paper) for number in range(10)) >= 3  # of figures
