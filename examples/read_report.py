"""Make a report, read its tables with pandas and plot one of them."""

import matplotlib

matplotlib.use("svg")  # no display is needed
import matplotlib.pyplot as plt

import mgg

graph = mgg.graph("digits", out="graph")
timings = mgg.aggregate(graph, technique=["halo", "broadcast", "ring"], dim=[16, 64], pes=2)
run = mgg.train(graph, model="gcn", epochs=50)
report = mgg.report(timings, run, out="report")

products = report.table("aggregate")
print(products.pivot_table(index="technique", columns="dim", values="bytes_wire").to_string())

epochs = report.table("epochs")
axes = epochs.plot(x="epoch", y=["validation_accuracy", "test_accuracy"], ylabel="accuracy", title="GCN on digits")
axes.figure.savefig("accuracy.svg")
plt.close(axes.figure)
print(f"accuracy.svg beside {report.page}")
