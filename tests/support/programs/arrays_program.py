"""Compare every array operation of GPUs with that of the host: ``python arrays_program.py`` prints ok."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np

from mgg.backend import launch
from mgg.backend.api import World
from mgg.kernel import random
from mgg.model import features as model_features
from mgg.model.arrays import HostArrays, arrays_of, pieces
from mgg.model.features import StreamedRows, dense_bytes, on_device, prepare_features

#: Rows and columns; the first is more than one piece of the product of many rows, with a remainder.
SHAPES = ((513, 16), (2_999, 7), (40, 130), (1, 1), (0, 5), (70_001, 3))
TOLERANCE = 1e-5
#: Allocations are rounded up to multiples of so many bytes.
ROUNDED = 512


def close(found: np.ndarray, expected: np.ndarray, what: str, least: float = 0.0) -> None:
    """Assert the same shape and type, and values within rounding of numbers of size ``least`` or more."""
    expected = np.asarray(expected)
    assert found.shape == expected.shape and found.dtype == expected.dtype, f"{what}: {found.dtype} {found.shape}"
    if expected.size:
        scale = max(np.abs(expected).max(), least) or 1
        error = np.abs(found.astype(np.float64) - expected).max() / scale
        assert error <= TOLERANCE, f"{what}: {error:.2g}"


class Comparison:
    """The operations of host and device, on arrays of one shape."""

    def __init__(self, world: World, rows: int, columns: int) -> None:
        self.world, self.host, self.device = world, HostArrays(), arrays_of(world)
        self.rng = np.random.default_rng(rows)
        self.rows, self.columns = rows, columns

    def normal(self, *shape: int, dtype: Any = np.float32) -> np.ndarray:
        return self.rng.normal(0.3, 1, shape).astype(dtype)

    def run(self, name: str, *args: Any, exact: bool = False) -> Any:
        """Compare an operation of both; returns the device's result, or its arguments if it changes them in place."""
        host_args = [arg.copy() if isinstance(arg, np.ndarray) else arg for arg in args]
        device_args = [_uploaded(self.world, arg) for arg in args]
        expected, found = getattr(self.host, name)(*host_args), getattr(self.device, name)(*device_args)
        if expected is None:  # it changed its arguments
            expected, found = host_args, device_args
        for number, (array, right) in enumerate(zip(_flat(found), _flat(expected), strict=True)):
            downloaded = self.world.download(array)
            if exact:
                assert np.array_equal(downloaded, right), f"{name} {number}"
            close(downloaded, right, f"{name} of {self.rows} x {self.columns}, result {number}")
        return found

    def all(self) -> None:
        rows, columns = self.rows, self.columns
        x, y = self.normal(rows, columns), self.normal(rows, columns)
        weight, other = self.normal(columns, 5), self.normal(rows, 5)
        scale, row = self.normal(rows, 1), [self.normal(columns) for _ in range(4)]
        wide = [np.abs(self.normal(columns, dtype=np.float64)) + 0.5 for _ in range(2)]
        self.run("product", x, weight)
        self.run("product", other, weight.T)
        self.run("transposed_product", x, other)
        self.run("column_sums", x)
        self.run("column_moments", x, x)
        self.run("column_moments", x, y)
        self.run("add_bias", x, row[0], exact=True)
        self.run("relu", x, exact=True)
        self.run("where_positive", x, y, exact=True)
        self.run("add_and_scale", x, y, scale)
        self.run("add_multiple", x, self.normal(1), y)
        self.run("combined", x, 0.25, y, -1.5)
        self.run("times", x, y, exact=True)
        y_unit, norms = (self.world.download(part) for part in self.run("normalize_rows", x, 1e-12))
        self.run("normalize_rows_backward", y, y_unit, norms)
        normal, inverse, _ = (self.world.download(part) for part in self.run("layer_norm", x, row[0], row[1], 1e-5))
        self.run("layer_norm_backward", y, normal, inverse, row[0])
        self.run("normalize", x, *row)
        self.run("normalize_with", x, tuple(wide), row[0], row[1], 1e-5)
        self.run("classes", x, exact=True)
        self.scaled(x, scale)
        self.layouts(x, y, scale)
        self.inner(x, y)
        self.batches(x, y, row, wide)
        self.losses(3 * x)
        self.adam()
        self.dropout(x)
        self.joined()
        self.sparse(x, other)
        self.streamed(x, weight, other)
        places = self.rng.permutation(self.rows)[: self.rows // 2]
        self.run("rows", x, places, exact=True)
        self.run("add_to_rows", x, places, y[places], exact=True)
        self.run("elu", x)
        self.run("elu_backward", x, np.maximum(y, -0.9))
        for heads in (1, 2, 3):
            self.heads(x, heads)
        self.arcs(x)

    def scaled(self, x: np.ndarray, scale: np.ndarray) -> None:
        out = self.world.upload(np.full_like(x, np.nan))
        self.device.scale_rows(self.world.upload(x), self.world.upload(scale), out)
        assert np.array_equal(self.world.download(out), x * scale)
        # Rows that are padded, as those of a plan's input, and unaligned rows; the padding stays as it is.
        rows, columns = x.shape
        for first, width in ((0, -(-columns // 4) * 4 + 4), (0, columns + 1), (1, columns + 5)):
            wide = self.world.upload(np.full((rows, width), np.nan, np.float32))
            out = wide[:, first : first + columns]
            given = self.device.scale_rows(self.world.upload(x), self.world.upload(scale), out)
            assert np.array_equal(self.world.download(out), x * scale)
            assert np.isnan(np.delete(self.world.download(wide), np.s_[first : first + columns], axis=1)).all()
            found = self.device.add_and_scale(self.world.upload(x), given, self.world.upload(scale))
            close(self.world.download(found), (x + x * scale) * scale, "add_and_scale of padded rows")

    def layouts(self, x: np.ndarray, y: np.ndarray, scale: np.ndarray) -> None:
        """Elementwise kernels take matrices of one shape in any memory order, and write row-major ones only."""
        upload, other, device_scale = self.world.upload, self.world.upload(y.copy()), self.world.upload(scale)
        column_major = upload(x.T.copy()).T
        for given in (column_major, upload(np.repeat(x, 2, axis=1))[:, ::2], upload(x[::-1].copy())[::-1]):
            found = self.device.scale_rows(given, device_scale, upload(np.full_like(x, np.nan)))
            assert np.array_equal(self.world.download(found), x * scale)
        refused = [(upload(x[:-1].copy()), other), (other[:, None], other)]
        if self.rows > 1 and self.columns > 1:
            refused += [(column_major.T, other), (other, column_major)]
        for given, out in refused if x.size else ():
            try:
                self.device.scale_rows(given, device_scale, out)
            except ValueError:
                continue
            raise AssertionError(f"not refused: {given.shape}, {given.strides} for {out.shape}, {out.strides}")

    def inner(self, x: np.ndarray, y: np.ndarray) -> None:
        found = self.world.download(self.device.inner(self.world.upload(x), self.world.upload(y)))
        error = abs(found[0] - (x.astype(np.float64) * y).sum())
        assert found.shape == (1,) and error <= 1e-12 * (np.abs(x * y).sum() + 1)

    def batches(self, x: np.ndarray, y: np.ndarray, row: list[np.ndarray], wide: list[np.ndarray]) -> None:
        nodes, sums = max(self.rows, 1), self.host.column_moments(x, y)
        squares = self.host.column_moments(x, x)
        expected = self.host.batch_statistics(squares, nodes, (wide[0], wide[1]), 0.1, 1e-5, x.dtype)
        moved = [_uploaded(self.world, array) for array in (squares, *wide)]
        found = self.device.batch_statistics(moved[0], nodes, (moved[1], moved[2]), 0.1, 1e-5, x.dtype)
        for array, right in zip(_flat(found), _flat(expected), strict=True):
            close(self.world.download(array), right, "batch_statistics")
        self.run("normalize_backward", x, y, sums, nodes, row[0], row[1])

    def losses(self, logits: np.ndarray) -> None:
        labels = self.rng.integers(0, self.columns, self.rows).astype(np.int32)
        for chosen in (np.flatnonzero(self.rng.random(self.rows) < 0.6), np.arange(self.rows), np.arange(0)):
            splits = self.rng.integers(0, 3, len(chosen)).astype(np.int32)
            for judge in (0, 2):
                self.run("class_sums", logits, labels, chosen, splits, judge, 3)
            weights = np.abs(self.normal(self.columns)) + np.float32(0.1)
            self.run("loss_and_gradient", logits, labels, chosen, weights, 7)
            tasks = self.rng.choice(np.array([0, 1, 255], np.uint8), logits.shape)
            self.run("binary_cross_entropy", logits, tasks, chosen)
            self.run("binary_loss_and_gradient", logits, tasks, chosen, 7)
            self.run("decisions", logits, tasks, chosen, exact=True)
        ties, everyone = np.round(logits / 3), np.arange(self.rows)
        found = self.run("class_sums", ties, labels, everyone, np.ones(self.rows, np.int32), 0, 2)
        assert self.world.download(found)[2] == self.host.class_sums(ties, labels, everyone, everyone * 0 + 1, 0, 2)[2]

    def heads(self, x: np.ndarray, heads: int) -> None:
        """Operations with heads, on ``heads`` copies of x side by side."""
        wide, vectors = np.tile(x, heads) + self.normal(self.rows, heads * self.columns), self.normal(heads, x.shape[1])
        score = self.normal(self.rows, heads)
        self.run("mean_of_heads", wide, heads)
        self.run("mean_of_heads_backward", x, heads)
        self.run("head_products", wide, vectors)
        self.run("head_products_backward", wide, vectors, score, wide + 1)
        expected, found = wide.copy(), self.world.upload(wide)
        self.host.head_products_backward(wide, vectors, score, expected)
        self.device.head_products_backward(*(self.world.upload(part) for part in (wide, vectors, score)), found)
        close(self.world.download(found), expected, "head_products_backward, in place")
        self.run("inner_products", wide, wide + 1, heads)

    def arcs(self, x: np.ndarray) -> None:
        """Sums for nodes without arcs, with some, and for one with most of them; repeated sums have the same bits."""
        counts = self.rng.integers(0, 9, 30) * (self.rows > 0)
        counts[7] *= 500
        ptr = np.concatenate([[0], np.cumsum(counts)])
        for kind in (np.int32, np.int64):
            ends = self.rng.integers(0, max(self.rows, 1), ptr[-1]).astype(kind)
            for weights in (None, self.normal(ptr[-1])):
                found = [self.world.download(self.run("arc_sums", ptr, ends, weights, x)) for _ in range(2)]
                assert np.array_equal(*found)

    def draws(self, seed: int, epoch: int, place: int) -> random.Draws:
        """Draws whose epoch is on the device."""
        return random.Draws(seed, self.world.upload(np.array([float(epoch)])), place)

    def adam(self) -> None:
        vectors = [self.normal(37), self.normal(37, dtype=np.float64), self.normal(37), np.abs(self.normal(37))]
        decay, rates = (
            np.where(np.arange(37) < 9, 0.3, 0).astype(np.float32),
            np.array([0.1, 1e-3, 0.05, 0.6, 1e-8, 0.3]),
        )
        for allowed in (np.ones(1), np.zeros(1)):
            exact = not allowed[0]  # nothing changes
            self.run("adam", *vectors, decay, rates, allowed, exact=exact)
            self.run("shrink", vectors[0], np.abs(self.normal(37)), rates, allowed, exact=exact)
            self.run("move", self.normal(37, dtype=np.float64), vectors[1], allowed, exact=True)
        for odd in (0.0, np.nan, np.inf, -np.inf, 1e18, -2e18):
            self.run("finite", np.append(vectors[1], odd), exact=True)

    def joined(self) -> None:
        shapes = ((3,), (0,), (2, 5), (1,), (self.columns, 3), (7,), (4,), (2,), (1, 1), (0, 2))
        for count in (1, 2, 8, 9, 10, 20):
            parts = [self.normal(*shape, dtype=np.float64) for shape in (shapes * 2)[:count]]
            for arrays in (parts, parts[::-1]):
                found = self.world.download(self.device.joined([self.world.upload(array) for array in arrays]))
                assert np.array_equal(found, self.host.joined(arrays))

    def dropout(self, x: np.ndarray) -> None:
        """Masks agree bit by bit, whatever the seed, the stream and the ids."""
        for seed, epoch, place, rate in (
            (0, 0, 0, 0.5),
            (2**63 + 5, 1, 1023, 0.37),
            (7, 2**30, 5, 0.9),
            (-3, 9, 1, 0.2),
        ):
            ids, stream = self.rng.integers(0, 2**40, self.rows), epoch * random.STREAMS + place
            expected, mask = self.host.dropout(x, ids, random.Draws(seed, epoch, place), rate)
            draws = self.draws(seed, epoch, place)
            found, device_mask = self.device.dropout(self.world.upload(x), self.world.upload(ids), draws, rate)
            assert np.array_equal(self.world.download(found), expected)
            gradient = self.device.masked(self.world.upload(2 * x), device_mask)
            assert np.array_equal(self.world.download(gradient), 2 * x * mask)
            assert ((mask > 0) == (random.uniform(seed, stream, ids, self.columns) >= np.float32(rate))).all()

    def sparse(self, x: np.ndarray, other: np.ndarray) -> None:
        """Sparse features, as they are and after dropout."""
        ids = self.rng.integers(0, 2**40, self.rows)
        csr = prepare_features(x * (self.rng.random(x.shape) < 0.2), as_sparse=True, row_normalize=False)
        device = on_device(self.world, csr, ids)
        weight, gradient = self.normal(self.columns, 5), other
        dropped = (
            self.host.dropout(csr, ids, random.Draws(3, 8, 1), 0.4)[0],
            self.device.dropout(device, None, self.draws(3, 8, 1), 0.4)[0],
        )
        for on_host, on_gpu in ((csr, device), dropped):
            assert np.array_equal(self.world.download(on_gpu.toarray()), on_host.toarray())
            product = self.device.product(on_gpu, self.world.upload(weight))
            close(self.world.download(product), on_host @ weight, "sparse product")
            product = self.device.transposed_product(on_gpu, self.world.upload(gradient))
            close(self.world.download(product), (on_host.T @ gradient).astype(np.float64), "transposed sparse product")

    def streamed(self, x: np.ndarray, weight: np.ndarray, gradient: np.ndarray) -> None:
        """Features in host memory, in few blocks and in many, as they are and after dropout."""
        ids = self.rng.integers(0, 2**40, self.rows)
        draws, host = random.Draws(3, 8, 1), self.host
        for rows in (100, 7_000, 2**30):
            with mock.patch.multiple(model_features, BLOCK_BYTES=1, BLOCK_ROWS=rows):
                features = StreamedRows(self.world, x)
            masked, mask = self.device.dropout(features, self.world.upload(ids), self.draws(3, 8, 1), 0.4)
            assert mask is None
            for on_host, on_gpu in ((x, features), (host.dropout(x, ids, draws, 0.4)[0], masked)):
                padded = self.world.upload(np.full((self.rows, 7), np.nan, np.float32))[:, :5]
                for out in (None, padded):
                    found = self.device.product(on_gpu, self.world.upload(weight), out)
                    close(self.world.download(found), on_host @ weight, "streamed product")
                found = self.device.transposed_product(on_gpu, self.world.upload(gradient))
                close(
                    self.world.download(found),
                    host.transposed_product(on_host, gradient),
                    "transposed streamed product",
                )
            features.close()


def wide_gradient(world: World) -> None:
    """With many columns X^T G is computed in few pieces, which take no more memory than predicted."""
    comparison, columns = Comparison(world, 2_601, 512), 512
    x, gradient = comparison.normal(2_601, columns), comparison.normal(2_601, columns)
    with mock.patch.object(pieces, "PIECES_BYTES", 8 << 20):  # many, for so few columns
        comparison.run("transposed_product", x, gradient)
        given = world.upload(x), world.upload(gradient)
        most = pieces.pieces_bytes(2_601, columns, columns) + 8 * columns**2
        assert most == 4 * 9 * columns**2 + 8 * columns**2
        assert 0 < bytes_allocated(lambda: comparison.device.transposed_product(*given)) <= most + 2 * ROUNDED


def dense_features(world: World) -> None:
    """Sparse features become dense, in as much memory as predicted."""
    comparison, columns = Comparison(world, 300, 1), 2055
    x = comparison.normal(300, columns) * (comparison.rng.random((300, columns)) < 0.05)
    features = on_device(world, prepare_features(x, as_sparse=True, row_normalize=False), np.arange(300))
    indexed = model_features.INDEXED
    for model_features.INDEXED in (0, indexed):  # with and without indices beyond CuPy's int32
        assert np.array_equal(world.download(features.toarray()), x)
    found, most = bytes_allocated(features.toarray), x.nbytes + dense_bytes(len(features.values))
    assert most <= found <= most + 3 * ROUNDED, (found, most)


def bytes_allocated(work: Callable[[], Any]) -> int:
    """Bytes of GPU memory that ``work`` allocates."""
    import cupy  # the stand-in can be imported only once its program has begun

    pool, sizes = cupy.cuda.MemoryPool(), []
    with cupy.cuda.using_allocator(lambda size: sizes.append(size) or pool.malloc(size)):
        work()
    return sum(sizes)


def _uploaded(world: World, value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_uploaded(world, entry) for entry in value)
    return world.upload(value.copy()) if isinstance(value, np.ndarray) else value


def _flat(values: Any) -> list[Any]:
    if isinstance(values, (tuple, list)):
        return [entry for value in values for entry in _flat(value)]
    return [values] if hasattr(values, "shape") else []


def program(world: World) -> str:
    for rows, columns in SHAPES:
        Comparison(world, rows, columns).all()
    wide_gradient(world)
    dense_features(world)
    return "ok"


if __name__ == "__main__":
    print(launch("nvshmem", lambda: 1, program)[0])
