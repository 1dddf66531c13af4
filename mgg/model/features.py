"""Input features as the first layer takes them."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from mgg.model.module import Array, Features

#: Features with a smaller share of entries set, such as bags of words, are held as CSR: there the sparse product costs
#: less than the dense one, and dropout draws far fewer numbers. The largest published case is Pubmed's 10 %.
SPARSE_BELOW = 0.25


def prepare_features(features: Array, *, as_sparse: bool, row_normalize: bool) -> Features:
    """``features`` [rows, columns] as CSR or as they are, row-normalized if asked for.

    Row normalization divides each row by the sum of its absolute values; a row of zeros stays.
    """
    x: Features = sparse.csr_array(features) if as_sparse else np.ascontiguousarray(features)
    if not row_normalize:
        return x
    sums = abs(x).sum(axis=1, dtype=np.float64)
    scale = np.divide(1, sums, out=np.zeros(len(sums)), where=sums > 0).astype(features.dtype)
    if sparse.issparse(x):
        return sparse.csr_array((x.data * np.repeat(scale, np.diff(x.indptr)), x.indices, x.indptr), shape=x.shape)
    return x * scale[:, None]
