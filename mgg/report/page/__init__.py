"""The page: its sections, its sentences and its template."""
