"""What ``--set`` makes of text."""

import pytest

from mgg.aggregate import parse_options
from mgg.cli.options import assignments_of
from mgg.errors import InputError
from mgg.model import settings_of


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ("5e-4", 5e-4), ("true", True), ("cosine", "cosine"), ("null", None), ("~", None), ("none", "none")],
)
def test_option_values_are_yaml_scalars(text, value):
    assert assignments_of([f"key={text}"]) == {"key": value}


@pytest.mark.parametrize("text", ["", " ", "[1]", "{a: 1}"])
def test_other_option_values_are_refused(text):
    with pytest.raises(InputError, match="the value must be a number, true, false, none or text"):
        assignments_of([f"key={text}"])


def test_key_that_is_set_twice_is_refused():
    with pytest.raises(InputError, match=r"^--set hidden=5: hidden is already set to 4; leave one of the two out$"):
        assignments_of(["hidden=4", "dropout=0", "hidden=5"])


@pytest.mark.parametrize("text", ["none", "null", "~", "None"])
def test_null_settings_and_options_round_trip(text):
    """As the documentation and a config write it; None is what Python makes of a config's null."""
    assert parse_options("halo", {"workgroup": 2, **assignments_of([f"workgroup={text}"])}).workgroup is None
    assert settings_of("gcn", {"patience": 3, **assignments_of([f"patience={text}"])}).patience is None
