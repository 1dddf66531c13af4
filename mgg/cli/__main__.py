"""``python -m mgg.cli``."""

from mgg.cli import main

if __name__ == "__main__":
    main()
