"""Machines that products are predicted for: measured in the job, kept in a file, or out of papers and data sheets."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from contextlib import suppress
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from mgg.backend import World, job_machine
from mgg.backend.api import together
from mgg.backend.emulated import bare
from mgg.cost import links
from mgg.cost.links import GIVEN, Link, Links
from mgg.cost.product import BLOCKS, Machine, Rate
from mgg.cost.rates import ON_H200, compared_with_h200, measure_rates
from mgg.errors import InputError, MachineError
from mgg.files import cache_folder, write_text
from mgg.hashed import sealed, unsealed
from mgg.network import Network
from mgg.schema import explain

_log = logging.getLogger(__name__)
_REMEDY = ": run mgg links --refresh"
_FITTED = "fitted by benchmarks/fit_costs.py to products on up to four H200 (docs/results/costs.md)"
_BASELINE = "measured on H200, docs/results/gpu.md"
_COLA = "CoLa (ICS'25), section 1 and table 4"
_SHEET = "NVIDIA's data sheets"

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
    basis=_FITTED,
)
#: GPUs with constants of their own, from products on them, by a word of the driver's name of the model. Those of
#: another kind go here, a ``Machine`` like H200's out of benchmarks/fit_costs.py: predictions for it, ``mgg links`` and
#: technique auto on such GPUs then rest on them.
FITTED = {"h200": H200}


def fitted_for(gpu: str) -> Machine | None:
    """The machine with constants of its own for ``gpu``, the driver's name of a model; None: there is none."""
    words = re.split(r"\W+", gpu.lower())
    return next((machine for name, machine in FITTED.items() if name in words), None)


def _compared(name: str, here: Links, longer: dict[str, tuple[float, float]], basis: str) -> Machine:
    """A machine with links of its own whose operators take ``longer`` than H200's: so many times for work, for bytes.

    What pulls a halo is the core of the row-wise product; what a warp of ``direct`` waits for is NVLink.
    """
    longer = longer | {"pulled": longer["rows"], "blocking": (1.0, 1.0)}
    rates = {key: rate.scaled(*longer[key]) for key, rate in H200.rates.items()}
    said = ", ".join(f"{key} {work:.3g} and {moved:.3g}" for key, (work, moved) in longer.items() if key in ON_H200)
    told = f"{basis}; rates of h200, times as long for work and bytes: {said}"
    return H200.model_copy(update={"name": name, "links": here, "rates": rates, "basis": told})


def _scaled(name: str, hbm: Link, more: dict[str, Link], rows: str, network: str, ports: int, basis: str) -> Machine:
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
    slower = H200.links["hbm"].bandwidth / hbm.bandwidth
    return H200.model_copy(
        update={
            "name": name,
            "links": Links(
                links={"hbm": hbm} | blocks | more | {"pcie": more.get("pcie", GIVEN["pcie"])},
                rows=rows, network=network, ports=ports, barrier=0.0,
            ),
            "rates": {key: rate.scaled(slower, slower) for key, rate in H200.rates.items()},
            "basis": f"{basis}; rates of h200, {slower:.3g} times as long",
        }
    )  # fmt: skip


def _of_paper(name: str, hbm: float, more: dict[str, Link], rows: str, network: str, ports: int) -> Machine:
    memory = Link(latency=0, bandwidth=hbm, source="CoLa (ICS'25), 6.1.2")
    return _scaled(name, memory, more, rows, network, ports, "links as CoLa (ICS'25) states them")


def _of_sheet(name: str, memory: float, nvlink: float) -> Machine:
    """A GPU of DGX systems of which nothing was measured: memory and NVLink in proportion to their data sheets.

    Args:
        memory, nvlink: bytes a second of its data sheet; those of H200 are 4.8e12 and 9e11.
    """
    share, links = memory / 4.8e12, H200.links
    fetch = links["nvlink"]
    rows = fetch.model_copy(
        update={"bandwidth": fetch.bandwidth * nvlink / 9e11, "source": f"{_SHEET}: {nvlink / 9e11:.3g} times H200"}
    )
    hbm = Link(latency=0, bandwidth=share * links["hbm"].bandwidth, source=f"{_SHEET}: {share:.3g} times H200")
    basis = f"not measured: links in proportion to {_SHEET}"
    return _scaled(name, hbm, GIVEN | {"nvlink": rows}, "nvlink", links.network, links.ports, basis)


#: What mgg links measured on two H100 (80 GB HBM3, docs/results/costs.md).
_ON_H100 = "measured on two H100, docs/results/costs.md"
_H100 = _compared(
    "h100",
    H200.links.model_copy(
        update={
            "links": H200.links.links | {
                "hbm": Link(latency=0, bandwidth=3.05e12, source=_ON_H100),
                "nvlink": Link(latency=3.964e-5, bandwidth=3.501e11, message=4.43e-11, source=_ON_H100),
                "broadcast": Link(latency=0, bandwidth=2.263e11, source=_ON_H100),
                "shift": Link(latency=0, bandwidth=2.955e11, source=_ON_H100),
            }
        }
    ),
    {"rows": (1.079, 1.182), "partitions": (1.008, 1.084), "columns": (1.196, 1.255)},
    f"links and operators {_ON_H100}",
)  # fmt: skip

#: Machines by name. Those of the CoLa paper have its links; that a host of A800 has 4 ports is our guess: with one,
#: table 3's volumes would take longer than table 7's products do.
MACHINES: dict[str, Machine] = {
    "h100": _H100,
    "a100": _of_sheet("a100", 2.039e12, 6e11),
    **FITTED,
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
#: What the driver calls GPUs of the machines above; others of the same family have other memory or no NVLink.
_MODELS = {
    "nvidia h200": "h200",
    "nvidia h100 80gb hbm3": "h100",
    "nvidia a100-sxm4-80gb": "a100",
    "nvidia a800-sxm4-80gb": "a800",
}


def find(name: str) -> Machine:
    """The machine called ``name``, be it a GPU's as its driver names it, or that of a file that ``mgg links`` wrote.

    Raises:
        InputError: no such name or file, or a damaged file.
    """
    known = name.strip().lower()
    known = _MODELS.get(known, known)
    if known in MACHINES:
        return MACHINES[known]
    if not Path(name).is_file():
        raise InputError(
            f"machine {name!r}: neither a file of mgg links nor known (there are {', '.join(sorted(MACHINES))}): run"
            " mgg links --out FILE there, and name that file"
        )
    return _read(Path(name))


def of_world(world: World, refresh: bool = False) -> Machine:
    """The machine of this job, the same on every PE (collective): out of the cache, else measured and kept there.

    What the rounds of a measurement disagree about is used by this job alone. Where the network is emulated, all else
    is that of the machine as it is.
    """
    found = found_or_measured(bare(world), refresh)[0]
    return found if world.emulated is None else over(found, world.emulated.network)


def over(machine: Machine, network: Network) -> Machine:
    """``machine`` whose workgroups a ``network`` joins that is emulated."""
    return machine.model_copy(update={"links": machine.links.over(network), "whole": False})


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
    """Measure links and operators (collective).

    Operators of GPUs that have constants of their own are these; of others H200's, compared with them by a probe.
    """
    here = links.measure(world)
    if not world.gpu:
        return Machine(
            name=world.name, gpu=False, links=here, rates=measure_rates(world), whole=world.name == "simulated",
            basis="measured",
        )  # fmt: skip
    fit = fitted_for(world.gpu)
    if fit is None:
        return _compared(world.gpu, _as_fitted(here, H200), compared_with_h200(world), "links and operators measured")
    told = {"name": world.gpu, "basis": f"links measured; rates of {fit.name}"}
    return fit.model_copy(update={"links": _as_fitted(here, fit), **told})


def _as_fitted(here: Links, fit: Machine) -> Links:
    """The links of GPUs as the rates of ``fit`` expect them.

    What a product spends on launches, meetings and the first bytes of a transfer was fitted to whole products; a probe
    sees only some of it, and the rates hold the meetings. Blocks have no more of the rows' bandwidth than in the fit.
    """
    changed = {}
    for name in {here.rows, "broadcast", "shift"} & set(fit.links.links):
        fitted, found = fit.links[name], here[name]
        most = here[here.rows].bandwidth * fitted.bandwidth / fit.links[fit.links.rows].bandwidth
        changed[name] = found.model_copy(
            update={
                "latency": fitted.latency,
                "bandwidth": min(found.bandwidth, most) if name in BLOCKS else found.bandwidth,
            }
        )
    meetings = {"barrier": fit.links.barrier, "barrier_again": 0.0}
    return here.model_copy(update={"links": here.links | changed} | meetings)


def cache_file(world: World) -> Path:
    """Where this machine is kept (collective): a file for each machine, backend and number of PEs, and for each fit."""
    facts = job_machine(world).model_dump() | {"backend": world.name, "pes": world.size}
    if world.gpu:  # what is kept holds constants of the fit, which those of another release are not
        facts["fit"] = (fitted_for(world.gpu) or H200).model_dump(), ON_H200
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


def write(path: Path, machine: Machine) -> None:
    """Write what ``find`` reads; raises MachineError where the disk is full or fails."""
    write_text(path, json.dumps(sealed(machine.model_dump()), indent=1) + "\n")


def _read(path: Path) -> Machine:
    try:
        values = unsealed(path.read_text(encoding="utf-8"), str(path), _REMEDY.removeprefix(": "))
        return Machine.model_validate(values)
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
        write(path, machine)
