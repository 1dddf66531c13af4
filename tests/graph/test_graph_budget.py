import pytest

from mgg.errors import InputError
from mgg.graph.budget import parse_size


@pytest.mark.parametrize(("text", "size"), [("1GiB", 2**30), ("800MB", 800_000_000), ("4096", 4096), ("1.5 KiB", 1536)])
def test_memory_sizes_are_parsed(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "lots", "-1GiB", "1 parsec", "nan"])
def test_invalid_memory_sizes_are_refused(text):
    with pytest.raises(InputError, match="not an amount of memory"):
        parse_size(text)
