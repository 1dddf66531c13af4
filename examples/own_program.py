"""A layer of your own as a vertex program, trained by PyTorch: needs the extra ``torch``.

The layer attends to neighbors by a trained temperature: shares are the softmax of inner products.
"""

import sys

try:
    import torch
except ImportError:
    sys.exit("this example needs PyTorch: pip install 'mgg[torch]'")

import mgg
from mgg import interop, layout, partition
from mgg import vertex as V
from mgg.model.program import Weight


@V.program
def attend(v, W, temperature):
    h = v.x @ W
    neighbors = [u.x @ W for u in v.innbs]
    shares = V.softmax([V.dot(h, other) * temperature for other in neighbors])
    return h + V.sum(share * other for share, other in zip(shares, neighbors))


class Net(torch.nn.Module):
    def __init__(self, graph, columns, classes):
        super().__init__()
        shapes = (columns, 16), (16, classes)
        first, second = ({"W": Weight(shape), "temperature": Weight((1,), "ones")} for shape in shapes)
        self.first = interop.VertexModule(graph, attend, first, seed=0)
        self.second = interop.VertexModule(graph, attend, second, seed=1)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def train(graph):
    model = Net(graph, graph.x.shape[1], graph.layout.manifest.classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    nodes = graph.total(graph.train_mask.sum())
    for _ in range(40):
        optimizer.zero_grad()
        logits = model(graph.x)[graph.train_mask]
        loss = torch.nn.functional.cross_entropy(logits, graph.y[graph.train_mask], reduction="sum") / nodes
        loss.backward()
        graph.sum_gradients(model.parameters())  # each PE has the share of its own rows
        optimizer.step()
    right = graph.total((model(graph.x).argmax(1) == graph.y)[graph.test_mask].sum())
    return float(right / graph.total(graph.test_mask.sum()))


digits = mgg.graph("digits", out="digits")
partition.build(digits, "digits-part", pes=2, scheme="edge_balanced", workgroup=8, dim=16)
layout.build(digits, "digits-part", "digits-layout")
print(f"test accuracy {interop.run('digits-layout', train, width=1)[0]:.1%} on two PEs")
