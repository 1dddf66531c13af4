"""There is no library to find: run.py has its functions."""
