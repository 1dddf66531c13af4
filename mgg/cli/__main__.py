"""``python -m mgg.cli``."""

from mgg.cli.group import main

if __name__ == "__main__":
    main()
