"""Train a GCN on Cora and print its test accuracy: about 81.5 % after 200 epochs."""

import mgg

run = mgg.train("cora", model="gcn", epochs=200)

print(f"test accuracy {run.test_accuracy:.1%} at epoch {run.record.best_epoch}")
print(run.metrics[["epoch", "loss", "validation_accuracy", "test_accuracy"]].tail(3).to_string(index=False))
wrong = run.predictions.query("split == 3 and prediction != label")
print(f"{len(wrong)} of 1000 test nodes are wrong, for example node {wrong.node.iloc[0]}")
