"""Check the launches of mgg/kernel/cuda, part by part: ``python fake_gpu/run.py launches_program.py``."""

import traceback

from support.devices import cola_launches, fork_launches, halo_launches
from support.programs import tiles_program

PARTS = {
    "tiles": tiles_program.main,
    "fork": fork_launches.main,
    "cola": cola_launches.main,
    "halo beside": lambda: halo_launches.main(dependents=True),
    "halo in turn": lambda: halo_launches.main(dependents=False),
}

if __name__ == "__main__":
    for name, part in PARTS.items():
        try:
            part()
        except Exception:
            traceback.print_exc()
        else:
            print(f"{name}: ok", flush=True)
