import hashlib

import numpy as np
import pytest

from mgg import npy
from mgg.errors import InputError


@pytest.mark.parametrize("values", [np.arange(6, dtype=np.uint64).reshape(2, 3), np.zeros(0, np.int32)])
def test_array_round_trips_and_has_the_hash_of_its_file(tmp_path, values):
    file = tmp_path / "values.npy"
    sha256 = npy.save(file, values)
    assert sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    found = npy.load(file, sha256, "run again")
    assert np.array_equal(found, values)
    assert (found.dtype, found.shape) == (values.dtype, values.shape)


@pytest.mark.parametrize("harm", ["flip", "truncate", "remove", "replace"])
def test_damaged_array_is_named_with_the_way_out(tmp_path, harm):
    file = tmp_path / "values.npy"
    sha256 = npy.save(file, np.arange(100))
    data = bytearray(file.read_bytes())
    data[-4] ^= 1
    if harm == "remove":
        file.unlink()
    elif harm == "replace":
        sha256 = hashlib.sha256(b"no array").hexdigest()
        file.write_bytes(b"no array")
    else:
        file.write_bytes(data if harm == "flip" else data[:50])
    with pytest.raises(InputError, match=r"values\.npy: .*: run again$"):
        npy.load(file, sha256, "run again")
