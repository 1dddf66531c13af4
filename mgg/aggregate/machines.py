"""Machines that products are predicted for: measured in the job, kept in a file, or as a paper states them."""

from __future__ import annotations

import hashlib
import json
import logging
from contextlib import suppress
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from mgg.aggregate import links
from mgg.aggregate.costs import BLOCKS, Machine, Rate
from mgg.aggregate.links import GIVEN, Link, Links
from mgg.aggregate.rates import compared_with_h200, measure_rates
from mgg.backend import World, job_machine
from mgg.backend.api import together
from mgg.errors import InputError, MachineError
from mgg.files import cache_folder, write_text
from mgg.schema import explain, nearest

_log = logging.getLogger(__name__)
_REMEDY = ": run mgg links --refresh"
_FITTED = "fitted by benchmarks/fit_costs.py to products on up to four H200 (docs/results/costs.md)"
_BASELINE = "measured on H200, docs/results/gpu.md"
_COLA = "CoLa (ICS'25), section 1 and table 4"

#: Of kernels whose warps cover the bytes of one with the work on another's arcs (benchmarks/fit_costs.py).
_rate = partial(Rate, power=3.0)

H200 = Machine(
    name="h200",
    gpu=True,
    links=Links(
        links={
            "hbm": Link(latency=0, bandwidth=4.226e12, source=_BASELINE),
            "nvlink": Link(latency=3.964e-5, bandwidth=3.397e11, message=3.76e-11, source=_FITTED),
            "broadcast": Link(latency=0, bandwidth=2.196e11, source=_FITTED),
            "shift": Link(latency=0, bandwidth=4.127e11, source=_FITTED),
            **GIVEN,
        },
        rows="nvlink",
        network="infiniband-ndr",
        ports=8,  # a port a GPU, as in NVIDIA's DGX H100 and H200
        barrier=0.0,  # part of the fitted calls
    ),
    rates={
        "rows": _rate(call=1.671e-4, arc=2.61e-12, arc_byte=8.318e-14, row=2.735e-10, row_byte=7.651e-14),
        "pulled": _rate(call=6.367e-5, arc=3.575e-12, arc_byte=9.379e-14, row=2.931e-10, row_byte=4.811e-13),
        "partitions": _rate(call=1.449e-4, arc=3.575e-12, arc_byte=9.379e-14, row=3.573e-10, row_byte=4.811e-13),
        "columns": _rate(call=0, arc=2.61e-12, arc_byte=1.664e-13, row_byte=0),
        "blocking": _rate(arc=2.374e-9, row=4.819e-10),
    },
    exposed=0.1533,
    staged=0.3322,
)


def _of_paper(name: str, hbm: float, more: dict[str, Link], rows: str, network: str, ports: int) -> Machine:
    """A machine of another memory bandwidth and other links; the rates of H200, as much slower as its memory.

    Blocks move at the share of the rows' bandwidth that they reach on H200.
    """
    share = {block: H200.links[block].bandwidth / H200.links["nvlink"].bandwidth for block in BLOCKS}
    blocks = {
        block: Link(
            latency=H200.links[block].latency,
            bandwidth=share[block] * more[rows].bandwidth,
            source=f"as on H200, in proportion to {rows}",
        )
        for block in share
    }
    slower = H200.links["hbm"].bandwidth / hbm
    memory = {"hbm": Link(latency=0, bandwidth=hbm, source="CoLa (ICS'25), 6.1.2")}
    return H200.model_copy(
        update={
            "name": name,
            "links": Links(
                links=memory | blocks | more | {"pcie": more.get("pcie", GIVEN["pcie"])},
                rows=rows, network=network, ports=ports, barrier=0.0,
            ),
            "rates": {key: rate.scaled(slower, slower) for key, rate in H200.rates.items()},
        }
    )  # fmt: skip


#: Machines by name. Those of the CoLa paper have its links; that a host of A800 has 4 ports is our guess: with one,
#: table 3's volumes would take longer than table 7's products do.
MACHINES: dict[str, Machine] = {
    "h200": H200,
    "a800": _of_paper(
        "a800", 1.381e12,
        {
            "nvlink": Link(latency=1.63e-5, bandwidth=3e11, source=_COLA),
            "infiniband": Link(latency=50e-6, bandwidth=18e9, message=1.95e-6, source=_COLA),
        },
        "nvlink", "infiniband", 4,
    ),
    "v100": _of_paper(
        "v100", 7.25e11,
        {
            "pcie": Link(latency=1.63e-5, bandwidth=20e9, source=_COLA),
            "qpi": Link(latency=1.63e-5, bandwidth=12e9, source=_COLA),
        },
        "pcie", "qpi", 1,
    ),
}  # fmt: skip


def find(name: str) -> Machine:
    """The machine called ``name``, or that of a file that ``mgg links`` wrote.

    Raises:
        InputError: no such name or file, or a damaged file.
    """
    if name in MACHINES:
        return MACHINES[name]
    if not Path(name).is_file():
        raise InputError(f"machine {name!r}: neither a file of mgg links nor known; {nearest(name, MACHINES)}")
    return _read(Path(name))


def of_world(world: World, refresh: bool = False) -> Machine:
    """The machine of this job, the same on every PE (collective): out of the cache, else measured and kept there.

    What the rounds of a measurement disagree about is used by this job alone.
    """
    return found_or_measured(world, refresh)[0]


def found_or_measured(world: World, refresh: bool) -> tuple[Machine, Path | None]:
    """``of_world``, and where it was found; None: it was measured (collective)."""
    path = cache_file(world)
    found = None if refresh else world.gather(together(world, lambda: _cached(path) if world.rank == 0 else None))[0]
    if found is not None:
        return found, path
    made = measure(world)
    together(world, lambda: _keep(path, made) if world.rank == 0 else None)
    return made, None


def measure(world: World) -> Machine:
    """Measure links and operators (collective); those of GPUs are H200's, as many times as long as a probe takes."""
    here = links.measure(world)
    if world.gpu:
        longer = compared_with_h200(world)
        longer |= {"pulled": longer["rows"], "blocking": (1.0, 1.0)}  # the same core; a wait for NVLink
        rates = {key: rate.scaled(*longer[key]) for key, rate in H200.rates.items()}
        return H200.model_copy(update={"name": world.gpu, "links": _as_fitted(here), "rates": rates})
    return Machine(name=world.name, gpu=False, links=here, rates=measure_rates(world), whole=world.name == "simulated")


def _as_fitted(here: Links) -> Links:
    """The links of GPUs as the rates of H200 expect them.

    What a product spends on launches, meetings and the first bytes of a transfer was fitted to whole products; a probe
    sees only some of it, and the rates hold the meetings. Blocks have no more of the rows' bandwidth than in the fit.
    """
    changed = {}
    for name in {here.rows, "broadcast", "shift"} & set(H200.links.links):
        fitted, found = H200.links[name], here[name]
        most = here[here.rows].bandwidth * fitted.bandwidth / H200.links["nvlink"].bandwidth
        changed[name] = found.model_copy(
            update={
                "latency": fitted.latency,
                "bandwidth": min(found.bandwidth, most) if name in BLOCKS else found.bandwidth,
            }
        )
    meetings = {"barrier": H200.links.barrier, "barrier_again": 0.0}
    return here.model_copy(update={"links": here.links | changed} | meetings)


def cache_file(world: World) -> Path:
    """Where this machine is kept (collective): a file for each machine, backend and number of PEs, and for each fit."""
    facts = job_machine(world).model_dump() | {"backend": world.name, "pes": world.size}
    if world.gpu:  # what is kept holds constants of the fit, which those of another release are not
        facts["fit"] = H200.model_dump()
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    return cache_folder("links") / f"{digest}.json"


def _cached(path: Path) -> Machine | None:
    """What is kept; a file of an older version, a damaged one or one with values that cannot be is as good as none."""
    if not path.is_file():
        return None
    try:
        found = _read(path)
        if wrong := found.links.beyond():
            raise InputError(f"{path}: {', '.join(wrong)}: faster than memory{_REMEDY}")
        if found.links.barrier and not found.links.barrier_again:
            raise InputError(f"{path}: links.barrier: of one round alone{_REMEDY}")
    except InputError as error:
        _log.warning("%s; measuring anew", str(error).removesuffix(_REMEDY))
        return None
    return found


def _read(path: Path) -> Machine:
    try:
        return Machine.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not readable ({error}){_REMEDY}") from None
    except ValidationError as error:
        raise InputError(f"{path}: {explain(error, Machine)}{_REMEDY}") from None


def _keep(path: Path, machine: Machine) -> None:
    """What cannot be written, or was disturbed, is measured again next time."""
    if machine.links.doubtful():
        _log.warning(
            "links: a barrier took %.4g us in one round and %.4g us in the next, as other work disturbs this machine:"
            " not kept", machine.links.barrier * 1e6, machine.links.barrier_again * 1e6,
        )  # fmt: skip
        return
    with suppress(OSError, InputError, MachineError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, machine.model_dump_json(indent=1) + "\n")
