"""Files from outside: downloads, archives, text, tables, ``.npz`` members and pickles, read without trusting them."""
