"""What a download shows while it runs."""

from download_site import ranged

from mgg.graph.io import download as module
from mgg.graph.io.download import fetch


def test_progress_is_lines_without_a_terminal(site, path, monkeypatch, capsys):
    monkeypatch.setattr(module, "REPORT_EVERY", 0.0)
    site.script = [lambda site, handler: ranged(site, handler, step=100_000), ranged]
    fetch(site.url, path)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines()[-1] == "file.bin: 0.3 of 0.3 MB (100%)"


def test_progress_is_a_bar_on_a_terminal(site, path, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    fetch(site.url, path)
    said = capsys.readouterr()
    assert said.out == ""
    assert "file.bin" in said.err
    assert "━" in said.err


def test_progress_is_lines_on_a_dumb_terminal(site, path, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(module, "REPORT_EVERY", 0.0)
    fetch(site.url, path)
    said = capsys.readouterr().err.splitlines()
    assert said[-1] == "file.bin: 0.3 of 0.3 MB (100%)" and "━" not in "".join(said)
