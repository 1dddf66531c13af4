"""Training by neighbor sampling, for comparison: the side ``pyg_sampled`` of ``mgg train``.

A step takes a batch of training nodes, some of their neighbors, and some neighbors of these (Hamilton, Ying and
Leskovec, NeurIPS 2017, section 3.1, with the batch and samples of its section 4). Layers are PyTorch Geometric's. The
sampler is ours, because PyTorch Geometric's needs packages without wheels on PyPI. Like that one, it samples each node
once per batch, without replacement, and each layer computes only the rows that the next layer reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import torch
from torch.nn.functional import cross_entropy

from mgg.backend.api import World
from mgg.interop.pyg_training import LibraryTrainer
from mgg.kernel.random import STREAMS, number_at, row_state, stream_key
from mgg.layout import PeLayout

#: Training nodes per step.
BATCH = 512
#: Most neighbors sampled for a node of the batch, then for a sampled node; the last value holds for further hops.
FANOUTS = (25, 10)


@dataclass(frozen=True)
class SampledBatch:
    """A batch and its sampled neighborhood.

    Attributes:
        nodes: int64, all nodes of the sample: the batch first, then the nodes that each hop adds.
        sizes: number of ``nodes`` after 0, 1, ... hops.
        hops: int64 [2, arcs] per hop: sources and targets as positions in ``nodes``.
    """

    nodes: np.ndarray
    sizes: list[int]
    hops: list[np.ndarray]


class Sampler:
    """Samples in-neighbors; the draws depend only on seed, epoch and node.

    Args:
        indptr, indices: in-neighbors of each node, CSR.
        fanouts: most neighbors of a node, per hop.
    """

    def __init__(self, indptr: np.ndarray, indices: np.ndarray, fanouts: tuple[int, ...]) -> None:
        self._indptr, self._indices, self._fanouts = np.asarray(indptr), np.asarray(indices), fanouts
        self._place = np.full(len(indptr) - 1, -1, np.int64)

    def sample(self, batch: np.ndarray, key: np.uint64) -> SampledBatch:
        """Return a sample for the nodes ``batch`` (int64, distinct); ``key`` is from ``stream_key``."""
        order, place = [batch], self._place
        place[batch] = np.arange(len(batch))
        sizes, hops, frontier = [len(batch)], [], batch
        for fanout in self._fanouts:
            counts = np.minimum(self._indptr[frontier + 1] - self._indptr[frontier], fanout)
            first = np.concatenate([[0], np.cumsum(counts)])
            sources = np.empty(first[-1], np.int64)
            _choose(key, frontier, self._indptr, self._indices, first, sources)
            added = np.empty(len(sources), np.int64)
            frontier = added[: _number(sources, place, sizes[-1], added)]
            targets = np.repeat(np.arange(sizes[-1] - len(order[-1]), sizes[-1]), counts)
            hops.append(np.stack([place[sources], targets]))
            order.append(frontier)
            sizes.append(sizes[-1] + len(frontier))
        nodes = np.concatenate(order)
        place[nodes] = -1
        return SampledBatch(nodes, sizes, hops)


@numba.njit(cache=True, nogil=True)
def _choose(key, nodes, indptr, indices, first, out):  # type: ignore[no-untyped-def]
    """Choose distinct neighbors of each node: Floyd's sample, CACM 30(9), 1987."""
    for i in range(nodes.size):
        begin, degree = indptr[nodes[i]], indptr[nodes[i] + 1] - indptr[nodes[i]]
        place, count = first[i], first[i + 1] - first[i]
        if count == degree:
            for k in range(count):
                out[place + k] = indices[begin + k]
            continue
        state = row_state(key, np.uint64(nodes[i]))
        for k in range(count):
            last = degree - count + k
            # 24 random bits: among ten million neighbors some are chosen up to twice as often as others.
            drawn = min(np.int64(number_at(state, np.uint64(k)) * np.float64(last + 1)), last)
            for other in range(k):
                if out[place + other] == drawn:
                    drawn = last
                    break
            out[place + k] = drawn
        for k in range(count):
            out[place + k] = indices[begin + out[place + k]]


@numba.njit(cache=True, nogil=True)
def _number(sources, place, size, added):  # type: ignore[no-untyped-def]
    """Assign sources without a place the next places from ``size``; return how many were added."""
    found = 0
    for source in sources:
        if place[source] < 0:
            place[source] = size + found
            added[found] = source
            found += 1
    return found


class SampledTrainer(LibraryTrainer):
    """A model of PyTorch Geometric, trained in batches; evaluation uses all neighbors, as on every side."""

    def __init__(self, world: World, layout: PeLayout, **how: Any) -> None:
        """Initialize as ``LibraryTrainer``."""
        super().__init__(world, layout, **how)
        layers = self.settings.model_dump()["layers"]
        csr = layout.forward.local
        self._sampler = Sampler(csr.indptr, csr.indices, (FANOUTS + FANOUTS[-1:] * layers)[:layers])
        self._trained = self._nodes["train"].cpu().numpy()

    def _steps(self, epoch: int) -> float:
        """Do one step per batch; return the mean loss over training nodes, each with the weights of its step."""
        sums = torch.zeros((), device=self._device)
        for sample in self._samples(epoch):
            self._optimizer.zero_grad()
            nodes = torch.as_tensor(sample.nodes, device=self._device)
            hops = [torch.as_tensor(hop, device=self._device) for hop in sample.hops]
            assert self._x is not None
            self._world.set_phase(epoch, "forward")
            logits = self._twin.sampled(self._x[nodes], hops, sample.sizes)
            labels = self._labels[nodes[: sample.sizes[0]]]
            total = cross_entropy(logits, labels, self._by_class, reduction="sum")
            self._world.set_phase(epoch, "backward")
            (total / len(labels)).backward()
            self._optimizer.step()
            sums += total.detach()
        return self._finite(epoch, float(sums) / self._counts["train"])

    def _samples(self, epoch: int) -> Iterator[SampledBatch]:
        """Yield samples of all batches of an epoch in random order; on GPUs the next one is sampled concurrently."""
        order = np.random.default_rng([self._seed, epoch]).permutation(self._trained)
        batches = [order[first : first + BATCH] for first in range(0, len(order), BATCH)]
        key = stream_key(self._seed, epoch * STREAMS)
        if self._device.type == "cpu":
            yield from (self._sampler.sample(batch, key) for batch in batches)
            return
        with ThreadPoolExecutor(1) as beside:
            following = beside.submit(self._sampler.sample, batches[0], key)
            for batch in [*batches[1:], None]:
                sample = following.result()
                if batch is not None:
                    following = beside.submit(self._sampler.sample, batch, key)
                yield sample
