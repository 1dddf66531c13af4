"""Train a GraphSAGE on a graph of your own, from two CSV tables.

The tables here are made up: four groups of nodes, and more edges inside a group than between two. Put your own there.
"""

from pathlib import Path

import numpy as np
import pandas as pd

import mgg

random = np.random.default_rng(0)
group = random.integers(0, 4, 600)
source = random.integers(0, 600, 6000)
friends = [random.choice(np.flatnonzero(group == group[node])) for node in source]
target = np.where(random.random(6000) < 0.4, friends, random.integers(0, 600, 6000))

folder = Path("mine")
folder.mkdir(exist_ok=True)
pd.DataFrame({"source": source, "target": target}).to_csv(folder / "edges.csv", index=False)
nodes = pd.DataFrame({"id": range(600), "label": group, "split": random.choice(["train", "validation", "test"], 600)})
for column in range(4):  # a weak hint at the group
    nodes[f"x{column}"] = (group == column) + random.normal(0, 1, 600)
nodes.to_csv(folder / "nodes.csv", index=False)

graph = mgg.graph("mine", loader="table", symmetrize=True, out="mine-graph")
print(f"{graph.manifest.nodes} nodes, {graph.manifest.arcs} arcs, {graph.manifest.classes} classes")
run = mgg.train(graph, model="sage", epochs=60, settings={"hidden": 32}, pes=2, out="mine-run")
print(f"test accuracy {run.test_accuracy:.1%}; predictions of all nodes are in {run.path}/predictions.parquet")
