"""``python -m mgg`` is ``mgg``."""

import sys

from mgg.cli import main

sys.exit(main())
