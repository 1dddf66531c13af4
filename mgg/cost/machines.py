"""Machines for predictions: measured in the job, read from a file, or taken from papers and data sheets."""

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
from mgg.cost.product import BLOCKS, MachineModel, Rate
from mgg.cost.rates import ON_H200, compared_with_h200, measure_rates
from mgg.errors import InputError, MachineError
from mgg.files import cache_folder, write_text
from mgg.hashed import sealed, unsealed
from mgg.network import Network
from mgg.schema import explain

_log = logging.getLogger(__name__)
_REMEDY = ": run mgg links --refresh"
_FITTED = "fitted by tools/fit_costs.py to products on up to four H200 (docs/results/costs.md)"
_BASELINE = "measured on H200, docs/results/costs.md"
_COLA = "CoLa (ICS'25), section 1 and table 4"
_SHEET = "NVIDIA's data sheets"

#: Rates of kernels in which one warp's transfers overlap another's work on arcs (tools/fit_costs.py).
_rate = partial(Rate, power=3.0)

H200 = MachineModel(
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
        ports=8,  # one per GPU, as in NVIDIA's DGX H100 and H200
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
#: GPU models with constants fitted to products on them, by a word of the driver's model name. To add a model, put a
#: ``MachineModel`` like H200's from tools/fit_costs.py here: predictions, ``mgg links`` and technique auto then
#: use it.
FITTED = {"h200": H200}


def fitted_for(gpu: str) -> MachineModel | None:
    """Return the machine with fitted constants for ``gpu``, the driver's model name; None if there is none."""
    words = re.split(r"\W+", gpu.lower())
    return next((machine for name, machine in FITTED.items() if name in words), None)


def _compared(name: str, here: Links, longer: dict[str, tuple[float, float]], basis: str) -> MachineModel:
    """Return a machine with links ``here`` and H200's rates, times the ratios ``longer`` for work and for bytes.

    The kernel that pulls a halo contains the row-wise product, so it shares its ratios; the waits of a warp of
    ``direct`` depend on NVLink, so they keep H200's.
    """
    longer = longer | {"pulled": longer["rows"], "blocking": (1.0, 1.0)}
    rates = {key: rate.scaled(*longer[key]) for key, rate in H200.rates.items()}
    said = ", ".join(f"{key} {work:.3g} and {moved:.3g}" for key, (work, moved) in longer.items() if key in ON_H200)
    text = f"{basis}; rates of h200, times as long for work and bytes: {said}"
    return H200.model_copy(update={"name": name, "links": here, "rates": rates, "basis": text})


def _scaled(
    name: str, hbm: Link, more: dict[str, Link], rows: str, network: str, ports: int, basis: str
) -> MachineModel:
    """Return a machine with other memory and links; H200's rates scale with the memory bandwidth.

    Blocks reach the same share of the rows' bandwidth as on H200.
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


def _of_paper(name: str, hbm: float, more: dict[str, Link], rows: str, network: str, ports: int) -> MachineModel:
    memory = Link(latency=0, bandwidth=hbm, source="CoLa (ICS'25), 6.1.2")
    return _scaled(name, memory, more, rows, network, ports, "links as CoLa (ICS'25) states them")


def _of_sheet(name: str, memory: float, nvlink: float) -> MachineModel:
    """Return an unmeasured GPU of DGX systems, with memory and NVLink in proportion to the data sheets.

    Args:
        memory, nvlink: bytes per second in its data sheet; H200's are 4.8e12 and 9e11.
    """
    share, links = memory / 4.8e12, H200.links
    fetch = links["nvlink"]
    rows = fetch.model_copy(
        update={"bandwidth": fetch.bandwidth * nvlink / 9e11, "source": f"{_SHEET}: {nvlink / 9e11:.3g} times H200"}
    )
    hbm = Link(latency=0, bandwidth=share * links["hbm"].bandwidth, source=f"{_SHEET}: {share:.3g} times H200")
    basis = f"not measured: links in proportion to {_SHEET}"
    return _scaled(name, hbm, GIVEN | {"nvlink": rows}, "nvlink", links.network, links.ports, basis)


#: Links that mgg links measured on two H100 (80 GB HBM3, docs/results/costs.md).
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

#: Machines by name. The CoLa paper's machines have its links. The 4 ports of an A800 host are our guess: with one port,
#: table 3's volumes would take longer than table 7's products.
MACHINES: dict[str, MachineModel] = {
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
#: The driver's names for the GPUs above; others of the same family have other memory or no NVLink.
_MODELS = {
    "nvidia h200": "h200",
    "nvidia h100 80gb hbm3": "h100",
    "nvidia a100-sxm4-80gb": "a100",
    "nvidia a800-sxm4-80gb": "a800",
}


def find(name: str) -> MachineModel:
    """Return the machine ``name``: a known name, a driver's GPU name, or a file that ``mgg links`` wrote.

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


def of_world(world: World, refresh: bool = False) -> MachineModel:
    """Return this job's machine, the same on every PE, from the cache or measured and cached (collective).

    A measurement whose rounds disagree is not cached: only this job uses it. An emulated network replaces only the
    links between workgroups.
    """
    found = found_or_measured(bare(world), refresh)[0]
    return found if world.emulated is None else over(found, world.emulated.network)


def over(machine: MachineModel, network: Network) -> MachineModel:
    """Return ``machine`` with an emulated ``network`` between its workgroups."""
    return machine.model_copy(update={"links": machine.links.over(network), "whole": False})


def found_or_measured(world: World, refresh: bool) -> tuple[MachineModel, Path | None]:
    """Return the machine and the cache file it came from, None if it was measured (collective)."""
    path = cache_file(world)
    found = None if refresh else world.gather(together(world, lambda: _cached(path) if world.rank == 0 else None))[0]
    if found is not None:
        return found, path
    made = measure(world)
    together(world, lambda: _keep(path, made) if world.rank == 0 else None)
    return made, None


def measure(world: World) -> MachineModel:
    """Measure links and operators (collective).

    GPUs with fitted constants use these; other GPUs use H200's, scaled by a probe that compares the two.
    """
    here = links.measure(world)
    if not world.gpu:
        return MachineModel(
            name=world.name, gpu=False, links=here, rates=measure_rates(world), whole=world.name == "simulated",
            basis="measured",
        )  # fmt: skip
    fit = fitted_for(world.gpu)
    if fit is None:
        return _compared(world.gpu, _as_fitted(here, H200), compared_with_h200(world), "links and operators measured")
    described = {"name": world.gpu, "basis": f"links measured; rates of {fit.name}"}
    return fit.model_copy(update={"links": _as_fitted(here, fit), **described})


def _as_fitted(here: Links, fit: MachineModel) -> Links:
    """Return the links of GPUs in the form that the rates of ``fit`` expect.

    The fit to whole products covers launches, barriers and the first bytes of transfers, of which a probe sees only a
    part; its rates include the barriers. Blocks get at most the share of the rows' bandwidth that they have in the fit.
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
    """Return the cache file of this job: one per machine, backend, number of PEs and fit (collective)."""
    facts = job_machine(world).model_dump() | {"backend": world.name, "pes": world.size}
    if world.gpu:  # the file holds constants of the fit, which may change between releases
        facts["fit"] = (fitted_for(world.gpu) or H200).model_dump(), ON_H200
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    return cache_folder("links") / f"{digest}.json"


def _cached(path: Path) -> MachineModel | None:
    """Return the cached machine; None if the file is missing, outdated, damaged, or has impossible values."""
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


def write(path: Path, machine: MachineModel) -> None:
    """Write a file for ``find``; raise MachineError if the disk is full or fails."""
    write_text(path, json.dumps(sealed(machine.model_dump()), indent=1) + "\n")


def _read(path: Path) -> MachineModel:
    try:
        values = unsealed(path.read_text(encoding="utf-8"), str(path), _REMEDY.removeprefix(": "))
        return MachineModel.model_validate(values)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not readable ({error}){_REMEDY}") from None
    except ValidationError as error:
        raise InputError(f"{path}: {explain(error, MachineModel)}{_REMEDY}") from None


def _keep(path: Path, machine: MachineModel) -> None:
    """Cache the machine; if the measurement was disturbed or the write fails, the next job measures again."""
    if machine.links.doubtful():
        _log.warning(
            "links: a barrier took %.4g us in one round and %.4g us in the next, as other work disturbs this machine:"
            " not kept", machine.links.barrier * 1e6, machine.links.barrier_again * 1e6,
        )  # fmt: skip
        return
    with suppress(OSError, InputError, MachineError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, machine)
