"""``mgg tune``: find the best setting of MGG's kernel for a layout, and keep it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mgg.cli.options import BACKEND, FOLDER, CommaList, common, show, speaks, split_assignments, usual, whole
from mgg.config import MAX_PRODUCTS
from mgg.tune.search import BUDGET

if TYPE_CHECKING:
    from mgg.aggregate.tuning import Tuned


def _as_json(tuned: Tuned) -> dict[str, Any]:
    """What is printed about a product as JSON."""
    entry, key = tuned.entry, tuned.entry.key
    tried = []
    for each in entry.tried:
        load = tuned.loads.get(each.setting)
        tried.append(each.model_dump(mode="json") | {"load": None if load is None else vars(load)})
    refused = [setting.options() | {"why": why} for setting, why in tuned.refused.items()]
    return {
        "direction": key.direction, "dim": key.dim, "dtype": key.dtype, "fresh": tuned.fresh,
        "chosen": entry.chosen.model_dump(), "tried": tried, "refused": refused, "table": str(key.path),
    }  # fmt: skip


def _line(tuned: Tuned) -> str:
    """What is printed about a product for people."""
    from statistics import median

    times = {each.setting: median(each.seconds) for each in tuned.entry.tried}
    best = tuned.entry.chosen.setting
    text = f"ps={best.ps} dist={best.dist} wpb={best.wpb}  {times[best] * 1e3:.3f} ms"
    if tuned.default in times and tuned.default != best:
        text += f", the default ({tuned.default}) {times[tuned.default] * 1e3:.3f} ms"
    if not tuned.fresh:
        return f"{text}; in the table before, nothing was tried"
    failed = f", {len(tuned.refused)} could not run" if tuned.refused else ""
    return f"{text}; {len(times)} settings tried{failed}"


@click.command()
@click.argument("layout", type=FOLDER)
@click.option("--dim", "dims", type=CommaList(int), required=True, help="embedding columns, or several: 16,64")
@click.option(
    "--direction", "directions", type=CommaList(choices=("forward", "transpose")), default="forward,transpose",
    show_default=True, help="products with A, with its transpose (backward), or both",
)  # fmt: skip
@click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="option of technique mgg that is not tuned"
)
@BACKEND
@whole("--warmup", 0, MAX_PRODUCTS, 2, "untimed products per setting")
@whole("--iterations", 1, MAX_PRODUCTS, 10, "timed products per setting")
@usual("--settings", BUDGET, "most settings to try, the default included", name="budget", type=click.IntRange(1, 150))
@click.option("--refresh", is_flag=True, help="search again, even if the table has a result")
@click.option("--out", type=FOLDER, help="JSON file of the result; the table is in the cache folder  [default: none]")
@common
def tune(
    layout: Path, dims: list[int], directions: list[str], assignments: tuple[str, ...], backend: str,
    warmup: int, iterations: int, budget: int, refresh: bool, out: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Find ps, dist and wpb of technique mgg on LAYOUT, for --set tune=cached; mpiexec -n P mgg tune ..."""
    import json

    from mgg.aggregate import parse_options
    from mgg.aggregate.expected_kernels import of_products
    from mgg.aggregate.measure import TimingProtocol
    from mgg.aggregate.neighbor_partitions.settings import TECHNIQUE
    from mgg.aggregate.tuning import tune as search
    from mgg.backend import World, launch, together
    from mgg.files import check_file_output, write_text
    from mgg.kernel.compile_ahead import ahead
    from mgg.layout import load, read_manifest
    from mgg.tune.setting import Setting

    plain, qualified = split_assignments(assignments, [TECHNIQUE])
    options = plain | qualified[TECHNIQUE]
    ahead.expect(of_products([(TECHNIQUE, parse_options(TECHNIQUE, options))], ["fp32"]))

    def program(world: World) -> list[Tuned]:
        if out is not None:
            together(world, lambda: check_file_output(out, "settings") if world.rank == 0 else None)
        mine = together(world, lambda: load(layout, world.rank))
        found = []
        for direction in directions:
            for dim in dims:

                def progress(setting: Setting, seconds: float, what: str = f"{direction} D={dim}") -> None:
                    if world.rank == 0:
                        click.echo(f"{what}: {setting}: {seconds * 1e3:.3f} ms", err=True)

                found.append(
                    search(
                        world, mine, direction, dim, options=options, refresh=refresh, budget=budget,
                        protocol=TimingProtocol(direction, warmup, iterations, check=False), progress=progress,
                    )
                )  # fmt: skip
        return found

    found = launch(backend, lambda: read_manifest(layout).pes, program)[0]
    products = [_as_json(each) for each in found]
    if out is not None and speaks():
        write_text(out, json.dumps(products, indent=1) + "\n")
    if as_json:
        show({"products": products}, True)
        return
    for each in found:
        key = each.entry.key
        show({f"{key.direction} D={key.dim} P={key.pes}": _line(each)}, False)
