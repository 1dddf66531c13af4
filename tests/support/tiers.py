"""Processor seconds of every test, so that the marker ``slow`` stays true. No test fails on its time."""

import json
import resource
from collections import defaultdict
from pathlib import Path

import pytest

#: What a quick test may take, of the processors.
QUICK_S = 1.0
#: By test: processor seconds, seconds by the clock.
_took: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
_slow: set[str] = set()
_counted = [0.0]


def _processor_seconds() -> float:
    """User and system time of this process and of the children it waited for."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def pytest_addoption(parser: pytest.Parser):
    parser.addoption("--took", metavar="FILE", help="list what the marker slow is wrong about; write all times to FILE")


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
    took[0] += getattr(report, "processor_s", 0)  # a worker that crashed tells nothing
    took[1] += report.duration
    if "slow" in report.keywords:
        _slow.add(report.nodeid)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config):
    """Which tests to mark. What a fixture of several tests takes counts for the first of them."""
    if not (file := config.getoption("--took")):
        return
    Path(file).write_text(json.dumps({test: [round(s, 3) for s in took] for test, took in _took.items()}, indent=0))
    long = sorted((took, test) for test, took in _took.items() if took[0] > QUICK_S and test not in _slow)[::-1]
    terminalreporter.section(f"{len(long)} tests not marked slow took over {QUICK_S:g} s of a processor")
    for (processor, clock), test in long:
        terminalreporter.write_line(f"{processor:6.1f} s, {clock:6.1f} s by the clock: {test}")
    quick = sum(_took[test][1] < QUICK_S / 4 for test in _slow)
    terminalreporter.write_line(f"Of {len(_slow)} marked slow, {quick} took under {QUICK_S / 4:g} s by the clock.")
