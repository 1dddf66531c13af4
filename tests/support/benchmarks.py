"""Import scripts of benchmarks/ and tools/."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
FOLDER, TOOLS = ROOT / "benchmarks", ROOT / "tools"


def script(name: str, folder: Path = FOLDER) -> ModuleType:
    """Import a script, which can import the others in its folder."""
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))
