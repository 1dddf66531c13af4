"""What holds for every test."""

from hypothesis import settings

# Tests do not time things: a function that numba compiles at its first call is no failure. CI's own settings stay.
settings.register_profile("untimed", settings.default, deadline=None)
settings.load_profile("untimed")

pytest_plugins = ["support.tiers"]
