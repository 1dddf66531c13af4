"""Processor seconds of every test, to check the marker ``slow``. No test fails because of its time."""

import json
import resource
from collections import defaultdict
from pathlib import Path

import pytest

#: Processor seconds that a quick test may take.
QUICK_S = 1.0
#: Test -> processor seconds, seconds of wall time.
_took: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
_slow: set[str] = set()
_counted = [0.0]


def _processor_seconds() -> float:
    """User and system time of this process and of its ended children."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def pytest_addoption(parser: pytest.Parser):
    parser.addoption("--took", metavar="FILE", help="list tests that need the marker slow; write all times to FILE")


def pytest_runtest_logstart():
    _counted[0] = _processor_seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    report = yield
    now = _processor_seconds()
    report.processor_s, _counted[0] = now - _counted[0], now
    return report


def pytest_runtest_logreport(report: pytest.TestReport):
    took = _took[report.nodeid]
    took[0] += getattr(report, "processor_s", 0)  # missing if a worker crashed
    took[1] += report.duration
    if "slow" in report.keywords:
        _slow.add(report.nodeid)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config):
    """List the tests to mark. A shared fixture counts for the first test that uses it."""
    if not (file := config.getoption("--took")):
        return
    Path(file).write_text(json.dumps({test: [round(s, 3) for s in took] for test, took in _took.items()}, indent=0))
    too_long = sorted((took, test) for test, took in _took.items() if took[0] > QUICK_S and test not in _slow)[::-1]
    terminalreporter.section(f"{len(too_long)} tests not marked slow took over {QUICK_S:g} s of a processor")
    for (processor, clock), test in too_long:
        terminalreporter.write_line(f"{processor:6.1f} s, {clock:6.1f} s by the clock: {test}")
    quick = sum(_took[test][1] < QUICK_S / 4 for test in _slow)
    terminalreporter.write_line(f"Of {len(_slow)} marked slow, {quick} took under {QUICK_S / 4:g} s by the clock.")
