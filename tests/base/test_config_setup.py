"""tools/venv.py: an interrupted set-up is completed by the next one."""

import importlib.util
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from support.workflow import ROOT

import mgg


class Installer:
    """tools/venv.py with commands that are written down instead of run; the one numbered ``dies`` is interrupted."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        spec = importlib.util.spec_from_file_location("venv_tool", ROOT / "tools" / "venv.py")
        self.tool = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.tool)
        self.folder, self.monkeypatch = folder, monkeypatch
        self.dies: int | None = None
        monkeypatch.setattr(self.tool, "_run", self._run)

    def _run(self, command: list[str], complaint: str) -> None:
        if len(self.commands) == self.dies:
            raise KeyboardInterrupt
        self.commands.append("venv" if "venv" in command else "pip " + command[-1].rpartition("/")[2])
        self.folder.mkdir(exist_ok=True)
        (self.folder / f"made by {self.commands[-1]}").touch()

    def __call__(self, *extras: str, dies: int | None = None) -> list[str]:
        """What the tool runs for these extras."""
        self.commands: list[str] = []
        self.dies = dies
        self.monkeypatch.setattr(sys, "argv", ["venv.py", str(self.folder), *extras])
        if dies is None:
            self.tool.main()
        else:
            with pytest.raises(KeyboardInterrupt):
                self.tool.main()
        return self.commands


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installer:
    return Installer(tmp_path / ".venv", monkeypatch)


def test_installation_is_idempotent_and_keeps_extras(install: Installer):
    assert install() == ["venv", f"pip {ROOT.name}"]
    assert install() == []
    assert install("dev") == [f"pip {ROOT.name}[dev]"]
    assert install() == install("dev") == []
    install.monkeypatch.setattr(install.tool, "_key", lambda folder: "another")  # other requirements
    assert install() == [f"pip {ROOT.name}[dev]"]


@pytest.mark.parametrize("dies", [0, 1])
def test_unfinished_environment_is_rebuilt(install: Installer, dies: int):
    install(dies=dies)
    install.folder.mkdir(exist_ok=True)
    (install.folder / "half").touch()
    assert install() == ["venv", f"pip {ROOT.name}"]
    assert not (install.folder / "half").exists()


def test_interrupted_installation_starts_afresh(install: Installer):
    install()
    install("dev", dies=0)
    assert install() == ["venv", f"pip {ROOT.name}"]


def test_containers_copy_the_package_sources():
    """Each path of the two lists exists, both have the same, and a wheel needs no other."""
    ignore = (ROOT / "containers/Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    docker = [line.removeprefix("!") for line in ignore if line.startswith("!")]
    lines = (ROOT / "containers/mgg.def").read_text(encoding="utf-8").partition("%files\n")[2].partition("%post")[0]
    files = [line.split() for line in lines.splitlines() if line.strip()]
    assert docker == [source for source, _ in files] and all((ROOT / source).exists() for source in docker)
    assert all(target == f"/opt/mgg/{source}" for source, target in files)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = [*wheel["packages"], *wheel["force-include"], project["project"]["readme"], "constraints.txt"]
    assert all(any(Path(each).is_relative_to(source) for source in docker) for each in needed)
    assert mgg.__version__ == yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"]
