"""Pages of the documentation as on the site."""

from support.benchmarks import ROOT, TOOLS, script


def rendered_page(path: str) -> str:
    """The text of a page with the parts that tools/site_pages.py generates."""
    return script("site_pages", TOOLS).on_page_markdown((ROOT / path).read_text(encoding="utf-8"), None)
