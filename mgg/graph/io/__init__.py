"""Reads untrusted files safely: downloads, archives, text, tables, ``.npz`` members and pickles."""
