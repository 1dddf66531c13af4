"""The records as rows, the columns of every table, and what is computed from them."""
