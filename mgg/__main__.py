"""``python -m mgg`` is ``mgg``."""

from mgg.cli import main

main()
