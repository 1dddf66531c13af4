"""The tuner of MGG's kernel (OSDI'23, section 6): the model, the search, and the table of results.

Nothing here measures or depends on PEs; ``mgg.aggregate.tuning`` and ``mgg.train.tuning`` do.
"""
