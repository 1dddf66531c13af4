"""The report page: sections, sentences and template."""
