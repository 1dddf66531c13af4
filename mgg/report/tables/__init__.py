"""Records as rows, the columns of every table, and values computed from them."""
