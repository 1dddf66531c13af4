"""Emulated networks on GPUs: right products, no faster than the network; stale and sampled rows as on CPU ranks."""

import json

import numpy as np
import pytest
from support.graphs import make_layout, random_csr
from support.graphs.train_graphs import directed
from support.programs.train_program import run
from support.ranks import succeeded

pytestmark = pytest.mark.gpu(2)

PRODUCTS = """
import sys
from mgg import layout
from mgg.aggregate import oracle, prepare
from mgg.backend import job_size, launch
from mgg.backend.emulated import emulating
from mgg.network import Network

NETWORK = Network(1e7, 1e-3)

def program(world):
    part = layout.load(sys.argv[-1], world.rank)
    emulated = emulating(world, NETWORK, 1)
    wrong, fast = 0.0, False
    for technique in ("halo", "cola", "ring", "broadcast", "features"):
        options = {"workgroup": 1} if technique in ("halo", "cola") else {}
        plan = prepare(technique, emulated, part, "forward", 64, options)
        plan.write(64, world.upload(oracle.embeddings(part.node_ids, 64)))
        clock, before = world.clock(), world.counters.embeddings()
        for _ in range(3):
            clock.start()
            product = plan(64)
            seconds, moved = clock.stop(), world.counters.embeddings() - before
            before += moved
            wrong = max(wrong, oracle.reference(part, "forward", 64).error(world.download(product)))
            fast |= seconds < moved / NETWORK.bandwidth + NETWORK.latency
        plan.close()
    return max(world.gather(wrong)) <= oracle.TOLERANCE["fp32"], any(world.gather(fast))

print("right, too fast:", launch("nvshmem", job_size, program)[0])
"""

TRAINING = """
import json
import sys
from mgg import layout
from mgg.backend import job_size, launch
from mgg.train import train

def program(world):
    return train(world, layout.load(sys.argv[-2], world.rank), **json.loads(sys.argv[-1]))

print("losses:", *(epoch.loss for epoch in launch("nvshmem", job_size, program)[0].epochs))
"""


def test_products_are_right_and_no_faster_than_the_network(tmp_path):
    folder = make_layout(tmp_path, random_csr(400, 6000), 2)
    done = succeeded(2, ["-c", PRODUCTS, str(folder)])
    assert done.stdout.count("right, too fast: (True, False)") == 2, done.stdout


@pytest.mark.parametrize(
    "halo_options", [{"workgroup": 1, "stale": 1}, {"boundary": 0.4}, {"workgroup": 1, "boundary": 0.4}]
)
def test_losses_with_stale_and_sampled_rows_equal_cpu(tmp_path, halo_options):
    csr, data = directed()
    folder = make_layout(tmp_path, csr, 2, **data)
    options = {
        "model": "gcn", "technique": "halo", "epochs": 8, "seed": 2, "options": halo_options,
        "settings": {"hidden": 8, "learning_rate": 0.05},
    }  # fmt: skip
    expected = [epoch.loss for epoch in run("simulated", folder, 2, **options)[0].epochs]
    done = succeeded(2, ["-c", TRAINING, str(folder), json.dumps(options)])
    for line in done.stdout.splitlines():
        if line.startswith("losses:"):
            np.testing.assert_allclose([float(loss) for loss in line.split()[1:]], expected, rtol=1e-4)
    assert done.stdout.count("losses:") == 2
