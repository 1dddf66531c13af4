"""The tuner of MGG's kernel (OSDI'23, section 6): the model, the search, and the table of what was found.

Nothing here measures or knows PEs: ``mgg.aggregate.tuning`` and ``mgg.train.tuning`` do.
"""
