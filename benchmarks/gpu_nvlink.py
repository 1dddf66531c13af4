"""Compare counted bytes with NVLink's own counters: ``mpiexec -n P python benchmarks/gpu_nvlink.py OUT``, a GPU a rank.

Kernels that load peers' memory cannot count what they load: the host adds it up from the plan (World's counters).
NVML counts what the links of a GPU received, payload alone (DATA_RX) and with headers (RAW_RX). Both are read around
PRODUCTS products, after a warm-up, and around as much idle time, whose traffic is printed beside. OUT gets
gpu_nvlink-pP.jsonl.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import cupy as cp
import pynvml
import yaml
from common import OUT, Results
from gpu_graphs import generated, on_gpus, pe_layout

from mgg.aggregate import oracle, parse_options, prepare
from mgg.backend import World
from mgg.backend.api import DEFAULT_TIMEOUT

PRODUCTS = 50
#: Counters in KiB, of all links of a GPU.
_FIELDS = {
    "data": pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
    "data_sent": pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
    "raw": pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_RAW_RX,
    "raw_sent": pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_RAW_TX,
}
_ALL_LINKS = 0xFFFFFFFF


class Counters:
    """NVLink's counters of this rank's GPU, found by its PCI address, as CUDA may number GPUs otherwise."""

    def __init__(self) -> None:
        pynvml.nvmlInit()
        self._handle = pynvml.nvmlDeviceGetHandleByPciBusId(cp.cuda.Device().pci_bus_id.encode())

    def read(self) -> dict[str, int]:
        """Bytes so far; raises SystemExit where the driver does not tell."""
        asked = [(field, _ALL_LINKS) for field in _FIELDS.values()]
        found = pynvml.nvmlDeviceGetFieldValues(self._handle, asked)
        wrong = [value.nvmlReturn for value in found if value.nvmlReturn]
        if wrong:
            sys.exit(f"error: NVML does not tell NVLink's counters here (code {wrong[0]})")
        return {name: 1024 * value.value.ullVal for name, value in zip(_FIELDS, found, strict=True)}


def received(world: World, counters: Counters, work: Callable[[], object]) -> dict[str, list[int]]:
    """What each GPU received and sent while ``work()`` ran (collective)."""
    world.barrier()
    world.finish()
    before = counters.read()
    work()
    world.finish()
    world.barrier()
    time.sleep(0.1)
    after = counters.read()
    mine = {name: after[name] - before[name] for name in before}
    every = world.gather(mine)
    return {name: [each[name] for each in every] for name in mine}


def parsed(spec: str) -> tuple[str, dict[str, Any]]:
    """``name`` or ``name:key=value,...`` -> name and options."""
    name, _, rest = spec.partition(":")
    pairs = (pair.partition("=") for pair in rest.split(",") if pair)
    return name, {key: yaml.safe_load(value) for key, _, value in pairs}


@click.command()
@OUT
@click.option("--techniques", default="mgg;direct;cola;halo;halo:dtype=bf16;broadcast;ring", help="separated by ;")
@click.option("--dims", default="16,64,128", show_default=True, help="separated by commas")
@click.option("--graphs", default="products-like,reddit-like", show_default=True, help="separated by commas")
@click.option("--scale", type=float, default=0.25, show_default=True, help="size as a share of the full graphs")
def main(out: Path, techniques: str, dims: str, graphs: str, scale: float) -> None:
    """Count and print a table."""

    def program(world: World) -> int:
        counters, results = Counters(), Results(out / f"gpu_nvlink-p{world.size}.jsonl", world.rank)
        for graph in graphs.split(","):
            layout = pe_layout(world, generated(graph, scale), graph)
            widths = [int(dim) for dim in dims.split(",")]
            for spec in techniques.split(";"):
                name, options = parsed(spec)
                dtype = options.pop("dtype", "fp32")
                chosen = parse_options(name, options).model_dump()
                plan = prepare(name, world, layout, "forward", max(widths), chosen, dtype)
                for dim in widths:
                    plan.write(dim, world.upload(oracle.embeddings(layout.node_ids, dim)))
                    plan(dim)
                    world.finish()
                    before = world.counters.embeddings()
                    started = time.perf_counter()
                    links = received(world, counters, lambda: [plan(dim) for _ in range(PRODUCTS)])  # noqa: B023
                    seconds = time.perf_counter() - started
                    counted = world.gather(world.counters.embeddings() - before)
                    idle = received(world, counters, lambda: time.sleep(seconds))  # noqa: B023
                    results.record(
                        graph=graph, spec=spec, dim=dim, pes=world.size, gpu=world.gpu, products=PRODUCTS,
                        counted=counted, links=links, idle=idle,
                    )  # fmt: skip
                    total, data, raw = sum(counted), sum(links["data"]), sum(links["raw"])
                    results.say(
                        f"{graph:<14} {spec:<16} D = {dim:<4} counted {total / PRODUCTS / 1e6:10.3f} MB a product,"
                        f" payload {data / max(total, 1):.4f}, with headers {raw / max(total, 1):.4f} of it,"
                        f" idle {sum(idle['data']) / max(total, 1):.5f}"
                    )
                plan.close()
        return 0

    on_gpus(program, DEFAULT_TIMEOUT)


if __name__ == "__main__":
    main()
