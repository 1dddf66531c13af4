"""What holds for every test."""

import signal

import pytest
from hypothesis import settings

# What a shell puts in the background ignores Ctrl-C, and children inherit that: tests send it to theirs.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests do not time things: a function that numba compiles at its first call is no failure. CI's own settings stay.
settings.register_profile("untimed", settings.default, deadline=None)
settings.load_profile("untimed")

pytest_plugins = ["support.tiers"]


@pytest.fixture
def ends():
    """Runs ``mgg`` with arguments; its exit code."""
    from support.ranks.commands import ended

    return ended


@pytest.fixture
def quick_probes(tmp_path, monkeypatch):
    """For technique auto: a cache of its own, and probes of the machine that are too small to say anything."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("mgg.cost.links.CPU_BYTES", 2**18)
    for name, value in {"ROWS": 128, "TABLE": 128, "GPU_ROWS": 256}.items():
        monkeypatch.setattr(f"mgg.cost.rates.{name}", value)
