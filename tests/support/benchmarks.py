"""Scripts of benchmarks/ and tools/ as modules."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
FOLDER, TOOLS = ROOT / "benchmarks", ROOT / "tools"


def script(name: str, folder: Path = FOLDER) -> ModuleType:
    """Import a script, which finds the others beside it."""
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))
