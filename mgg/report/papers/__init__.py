"""The papers' figures and tables beside the records."""
