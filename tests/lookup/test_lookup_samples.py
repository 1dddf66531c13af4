"""Samples: the generator, the loader of Criteo's file, what a folder of them refuses."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from mgg.cli.group import cli
from mgg.errors import InputError
from mgg.lookup import criteo, criteo_like
from mgg.lookup.samples import MANIFEST_FILE, ROWS_FILE, load, share


def line(categories, label="0", integers=("1",) * 13):
    return "\t".join([label, *integers, *categories])


def text_of(columns, ending="\n"):
    """Lines whose first categories are ``columns``, all others missing; an integer is negative, one missing."""
    integers = ("-2", "", *["30"] * 11)
    return ending.join(line([*given, *[""] * (26 - len(given))], "1", integers) for given in columns)


def test_rows_are_numbered_by_first_appearance(tmp_path):
    """Against numbers given by a dictionary, over chunks that end within lines; the last line has no end."""
    rng = np.random.default_rng(0)
    names = [*(f"{n:08x}" for n in (0, 1, 0xFFFFFFFF, 0xABCDEF01)), ""]
    columns = [[names[k] for k in rng.integers(0, 5, 3)] for _ in range(300)]
    file = tmp_path / "train.txt"
    file.write_bytes(text_of(columns, "\r\n").encode())
    made = criteo.load(file, tmp_path / "out", ids="first", chunk=1000)
    seen = [{} for _ in range(3)]
    expected = [[each.setdefault(name, len(each)) for each, name in zip(seen, row, strict=True)] for row in columns]
    rows = load(tmp_path / "out", verify=True).rows
    assert rows[:, :3].tolist() == expected and not rows[:, 3:].any()
    assert made.tables == [5, 5, 5, *[1] * 23] and made.samples == 300
    source = made.source
    assert (source["ids"], source["lines"], source["all_lines"]) == ("first", 300, True)
    assert source["missing"][0] == sum(row[0] == "" for row in columns) and source["missing"][25] == 300


def test_rows_are_numbered_by_hash(tmp_path):
    """What is missing is row 0, which no category has; upper case is the same category."""
    file = tmp_path / "train.txt"
    file.write_text(text_of([["00000007", ""], ["0000000a", "0000000A"], ["ffffffff"]]) + "\n")
    made = criteo.load(file, tmp_path / "out", ids="hash", rows=8, samples=2)
    assert load(tmp_path / "out", verify=True).rows[:, :2].tolist() == [[1, 0], [4, 4]]
    assert made.tables == [8] * 26 and not made.source["all_lines"]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (line(["0" * 8] * 25), "39 columns, expected 40: a label, 13 integers and 26 categories, separated by tabs"),
        ("", "1 columns, expected 40: a label, 13 integers and 26 categories, separated by tabs"),
        (line([""] * 26, label="2"), "column 1 is no label, 0 or 1"),
        (line([""] * 26, integers=["", "-", *[""] * 11]), "column 3 is no integer"),
        (line(["", "0000000g", *[""] * 24]), "column 16 is no category of 8 hexadecimal digits"),
        (line([*[""] * 25, "0000000"]), "column 40 is no category of 8 hexadecimal digits"),
    ],
)
def test_invalid_line_is_named(tmp_path, bad, message):
    file = tmp_path / "train.txt"
    file.write_text(text_of([["00000007"]] * 40) + f"\n{bad}\n" + text_of([[""]]))
    with pytest.raises(InputError) as error:
        criteo.load(file, tmp_path / "out", ids="first", chunk=500)
    assert str(error.value) == f"{file}: line 41: {message}"
    assert not (tmp_path / "out").exists()


def test_mismatched_options_are_refused(tmp_path):
    file = tmp_path / "train.txt"
    file.write_bytes(b"")
    for options, message in (
        ({"ids": "hash"}, "--ids hash needs --rows, the rows of every table"),
        ({"ids": "first", "rows": 9}, "--rows belongs to --ids hash alone"),
        ({"ids": "first"}, f"{file}: is empty"),
    ):
        with pytest.raises(InputError, match=message.replace("(", r"\(")):
            criteo.load(file, tmp_path / "out", **options)


def test_generated_samples_follow_zipfs_law(tmp_path):
    """Sizes by scale, the same rows again, frequencies as Zipf's law has them."""
    out = tmp_path / "made"
    run = CliRunner().invoke(
        cli, ["generate", "criteo-like", "--out", str(out), "--scale", "0.01", "--samples", "70000", "--json"]
    )
    assert run.exit_code == 0, run.output
    tables = [max(1, round(rows / 100)) for rows in criteo_like.TABLES]
    assert json.loads(run.stdout)["rows"] == sum(tables) and sum(criteo_like.TABLES) == 33_762_577
    first = load(out, verify=True)
    criteo_like.generate(tmp_path / "again", scale=0.01, samples=70_000)
    assert load(tmp_path / "again", verify=True).manifest == first.manifest
    assert first.manifest.tables == tables
    rows = first.rows[:, 2]  # of 101,312
    assert rows.min() == 0 and rows.max() < tables[2]
    # A row's share by the law: the integral of x^-1.05 from k + 1 to k + 2 over that of the whole.
    whole = 1 - (tables[2] + 1) ** -0.05
    for row in (0, 1, 9):
        wanted = ((row + 1) ** -0.05 - (row + 2) ** -0.05) / whole
        assert np.isclose((rows == row).mean(), wanted, rtol=0.1), row


def test_batches_cover_every_sample_once(tmp_path):
    """Every sample once until all are through, whatever the number of PEs; rows of all tables are told apart."""
    criteo_like.generate(tmp_path, scale=1e-4, samples=100)
    found = load(tmp_path, verify=False)
    offsets = np.cumsum([0, *found.manifest.tables[:-1]])
    for pes in (1, 3):
        parts = [found.batch(number, 30, pe, pes) for number in range(3) for pe in range(pes)]
        assert np.array_equal(np.concatenate(parts), found.rows[:90] + offsets)
    assert np.array_equal(found.batch(3, 30, 0, 1), found.batch(0, 30, 0, 1))
    assert [share(7, pe, 3) for pe in range(3)] == [(0, 2), (2, 4), (4, 7)]
    with pytest.raises(InputError, match="--batches 101: criteo-like has 100 samples: take smaller batches"):
        found.batch(0, 101, 0, 1)


def test_altered_samples_are_refused(tmp_path):
    criteo_like.generate(tmp_path / "made", scale=1e-4, samples=10)
    file = tmp_path / "made" / ROWS_FILE
    file.write_bytes(file.read_bytes()[:-1] + b"\1")
    with pytest.raises(InputError, match=f"{ROWS_FILE}: truncated or altered"):
        load(tmp_path / "made", verify=True)
    (tmp_path / "made" / MANIFEST_FILE).unlink()
    with pytest.raises(InputError, match="not a samples folder"):
        load(tmp_path / "made", verify=True)
