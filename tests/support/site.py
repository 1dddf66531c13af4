"""Pages of the documentation as on the site."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

ROOT = Path(__file__).parents[2]


def made_page(path: str) -> str:
    """The text of a page with the parts that tools/site_pages.py generates."""
    spec = spec_from_file_location("site_pages", ROOT / "tools" / "site_pages.py")
    hook = module_from_spec(spec)
    spec.loader.exec_module(hook)
    return hook.on_page_markdown((ROOT / path).read_text(encoding="utf-8"), None)
