"""What a run prints: bars on a terminal, plain lines elsewhere."""

import os
import pty
import subprocess
from pathlib import Path

import pytest
from support.workflow import Folder

BARS = "Total Progress"
PLAIN = "rule generate:"


def seen(folder: Folder, *arguments: str, code: int = 0, **environment: str) -> str:
    """What a terminal is shown by a run of stage graph that ends with ``code``."""
    master, terminal = pty.openpty()
    # In colors, which somebody at a terminal has.
    command = [word for word in folder.command("--until", "generate") if word != "--nocolor"]
    env = folder.environment(**{"TERM": "xterm", "COLUMNS": "100"} | environment)
    if "CI" not in environment:
        env.pop("CI", None)
    with subprocess.Popen(
        [*command, *arguments], cwd=folder.path, env=env, stdin=terminal, stdout=terminal, stderr=terminal
    ) as run:
        os.close(terminal)
        output = b""
        while True:
            try:
                data = os.read(master, 65536)
            except OSError:  # how a terminal tells that its last writer has gone
                break
            if not data:
                break
            output += data
        assert run.wait() == code, output.decode()
    os.close(master)
    return output.decode()


@pytest.mark.slow
def test_terminal_shows_bars(folder: Folder):
    pytest.importorskip("snakemake_logger_plugin_rich")
    output = seen(folder)
    assert BARS in output and PLAIN not in output
    # The cursor is back, and the plain lines are in Snakemake's own log.
    assert output.rfind("\x1b[?25h") > output.rfind("\x1b[?25l")
    [log] = (folder.path / ".snakemake/log").glob("*.log")
    assert PLAIN in log.read_text(encoding="utf-8")


@pytest.mark.slow
def test_failed_run_does_not_end_in_green(folder: Folder):
    pytest.importorskip("snakemake_logger_plugin_rich")
    (folder.path / "mgg").write_text("#!/bin/sh\necho no >&2; exit 4\n", encoding="utf-8")
    (folder.path / "mgg").chmod(0o755)
    output = seen(folder, code=1, PATH=f"{folder.path}:{os.environ['PATH']}")
    assert "Workflow Finished" not in output
    failed, end, log = (output.rfind(words) for words in ("What failed:", "Workflow failed", "Complete log"))
    assert -1 < failed < end < log, output


@pytest.mark.slow
@pytest.mark.parametrize("environment", [{"CI": "true"}, {"TERM": "dumb"}])
def test_background_run_prints_plain_lines(folder: Folder, environment: dict[str, str]):
    output = seen(folder, **environment)
    assert PLAIN in output and BARS not in output


@pytest.mark.slow
def test_file_output_has_plain_lines(finished: Folder):
    output = finished.run("--forcerun", "generate", "--until", "generate").stdout
    assert PLAIN in output and BARS not in output and "\x1b[" not in output


@pytest.mark.slow
def test_snakemakes_own_output_needs_a_flag(folder: Folder):
    assert PLAIN in seen(folder, "--nocolor")


@pytest.mark.slow
def test_dry_run_prints_snakemakes_plan(folder: Folder):
    output = seen(folder, "--dry-run")
    assert PLAIN in output and "mgg generate planted" in output and not Path(folder.results).exists()
