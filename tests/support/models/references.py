"""Reference models of PyTorch Geometric's layers, or in PyTorch arc by arc if it has none; with our settings."""

from dataclasses import replace

from torch.nn.functional import elu, layer_norm, leaky_relu, normalize, relu
from torch_geometric.nn import (
    APPNP,
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    PNAConv,
    RGCNConv,
    SAGEConv,
    SGConv,
    TransformerConv,
)
from torch_geometric.utils import degree, softmax

from support.models.pyg import Reference, Transposed, torch

BatchNorm1d, Linear = torch.nn.BatchNorm1d, torch.nn.Linear


def parameter(*shape):
    return torch.nn.Parameter(torch.empty(shape))


def of_linear(name, linear):
    found = {f"{name}.weight": Transposed(linear.weight)}
    return found if linear.bias is None else found | {f"{name}.bias": linear.bias}


def of_norm(name, norm):
    """Our names of a normalization's weights, and of its running statistics."""
    running = isinstance(norm, BatchNorm1d)
    state = {f"{name}.running_mean": norm.running_mean, f"{name}.running_variance": norm.running_var} if running else {}
    return {f"{name}.scale": norm.weight, f"{name}.shift": norm.bias}, state


def gcn(facts):
    layers = GCNConv(facts.features, 16), GCNConv(16, facts.classes)
    names = {f"layer{k}.weight": Transposed(layer.lin.weight) for k, layer in enumerate(layers)}
    names |= {f"layer{k}.bias": layer.bias for k, layer in enumerate(layers)}

    def forward(x, arcs):
        hidden = relu(layers[0](x, arcs.edge_index, arcs.edge_weight))
        return layers[1](hidden, arcs.edge_index, arcs.edge_weight)

    return Reference(forward, names)


def gcn_of_all_loops(facts):
    """GCN with I added to the graph's self-loops, as published; GCNConv adds none to a node that has one."""
    reference = gcn(facts)

    def forward(x, arcs):
        loops = (arcs.edge_index[0] == arcs.edge_index[1]).float()
        assert 0 < loops.sum() < facts.nodes
        return reference.forward(x, replace(arcs, edge_weight=1 + loops))

    return replace(reference, forward=forward)


def gin(facts, normalization="batch", residual=False):
    names, state, layers = {}, {}, []
    for k in range(2):
        first, second = Linear(16 if k else facts.features, 16, bias=False), Linear(16, 16, bias=False)
        inner, outer = (BatchNorm1d(16) if normalization == "batch" else torch.nn.LayerNorm(16) for _ in range(2))
        mlp = torch.nn.Sequential(first, inner, torch.nn.ReLU(), second, outer, torch.nn.ReLU())
        layers.append(GINConv(mlp, train_eps=True))
        names |= of_linear(f"layer{k}.mlp0", first) | of_linear(f"layer{k}.mlp1", second)
        names[f"layer{k}.epsilon"] = layers[-1].eps
        for name, norm in ((f"layer{k}.mlp0.norm", inner), (f"layer{k}.norm", outer)):
            weights, running = of_norm(name, norm)
            names, state = names | weights, state | running
    classifier = Linear(16, facts.classes)

    def forward(x, arcs):
        for k, layer in enumerate(layers):
            y = layer(x, arcs.adjacency)
            x = x + y if residual and k else y
        return classifier(x)

    return Reference(forward, names | of_linear("classifier", classifier), state)


def appnp(facts):
    first, second = Linear(facts.features, 16, bias=False), Linear(16, facts.classes, bias=False)
    steps = APPNP(K=4, alpha=0.2)

    def forward(x, arcs):
        return steps(second(relu(first(x))), arcs.edge_index, arcs.edge_weight)

    return Reference(forward, of_linear("layer0", first) | of_linear("layer1", second))


def gat(facts):
    layers = GATConv(facts.features, 6, heads=3), GATConv(18, facts.classes, heads=2, concat=False)
    names = {}
    for k, layer in enumerate(layers):
        names |= {f"layer{k}.weight": Transposed(layer.lin.weight), f"layer{k}.bias": layer.bias}
        names |= {f"layer{k}.target": layer.att_dst, f"layer{k}.source": layer.att_src}
    return Reference(lambda x, arcs: layers[1](elu(layers[0](x, arcs.edge_index)), arcs.edge_index), names)


def gatv2(facts, shared=False):
    layers = (
        GATv2Conv(facts.features, 6, heads=3, share_weights=shared),
        GATv2Conv(18, facts.classes, heads=2, concat=False, share_weights=shared),
    )
    names = {}
    for k, layer in enumerate(layers):
        ends = {"source": layer.lin_l} if shared else {"source": layer.lin_l, "target": layer.lin_r}
        for end, linear in ends.items():
            names |= {f"layer{k}.W_{end}": Transposed(linear.weight), f"layer{k}.b_{end}": linear.bias}
        names |= {f"layer{k}.a": layer.att, f"layer{k}.bias": layer.bias}
    return Reference(lambda x, arcs: layers[1](elu(layers[0](x, arcs.edge_index)), arcs.edge_index), names)


def pna(facts):
    columns, aggregators = 6, ["mean", "max", "min", "std"]
    embedding, classifier = Linear(facts.features, columns), Linear(columns, facts.classes)
    scalers = ["identity", "amplification", "attenuation"]
    layers = [PNAConv(columns, columns, aggregators, scalers, torch.tensor([0, 1])) for _ in range(2)]
    norms, parts, state = [BatchNorm1d(columns) for _ in layers], [], {}
    names = of_linear("embedding", embedding) | of_linear("classifier", classifier)
    for k, (layer, norm) in enumerate(zip(layers, norms, strict=True)):
        # Our model has two matrices before the aggregation, and one after it where PNAConv has two.
        target, source = parameter(columns, columns), parameter(columns, columns)
        before, after = layer.pre_nns[0][0], layer.post_nns[0][0]
        del before.weight
        parts.append((before, target, source))
        torch.nn.init.eye_(layer.lin.weight), torch.nn.init.zeros_(layer.lin.bias), torch.nn.init.zeros_(after.bias)
        names |= {f"layer{k}.W_target": Transposed(target), f"layer{k}.W_source": Transposed(source)}
        names |= {f"layer{k}.b_message": before.bias, f"layer{k}.W": Transposed(after.weight)}
        weights, running = of_norm(f"layer{k}.norm", norm)
        names, state = names | weights, state | running

    def forward(x, arcs):
        x, degrees = embedding(x), degree(arcs.edge_index[1], len(x))
        for layer, norm, (before, target, source) in zip(layers, norms, parts, strict=True):
            before.weight = torch.cat([target, source], 1)
            layer.aggr_module.avg_deg_log.fill_(float((degrees + 1).log().mean()))
            x = x + norm(layer(x, arcs.edge_index)).relu()
        return classifier(x)

    return Reference(forward, names, state)


def rgcn(facts, bases=0):
    """Self-loops are one more type of arcs, for RGCNConv too."""
    options = {"num_relations": facts.relations + 1, "num_bases": bases or None, "root_weight": False, "bias": False}
    layers = RGCNConv(facts.features or facts.nodes, 16, **options), RGCNConv(16, facts.classes, **options)
    names = {}
    for k, layer in enumerate(layers):
        if bases:
            names |= {f"layer{k}.bases": layer.weight, f"layer{k}.coefficients": layer.comp}
        else:
            names[f"layer{k}.weight"] = layer.weight

    def forward(x, arcs):
        nodes = torch.arange(facts.nodes)
        edge_index = torch.cat([arcs.edge_index, torch.stack([nodes, nodes])], dim=1)
        edge_type = torch.cat([arcs.edge_type, torch.full_like(nodes, facts.relations)])
        return layers[1](relu(layers[0](x, edge_index, edge_type)), edge_index, edge_type)

    return Reference(forward, names)


def sage(facts):
    layers, classifier = (SAGEConv(facts.features, 16), SAGEConv(16, 16)), Linear(16, facts.classes)
    names = of_linear("classifier", classifier)
    for k, layer in enumerate(layers):
        names |= {f"layer{k}.self.weight": Transposed(layer.lin_r.weight), f"layer{k}.bias": layer.lin_l.bias}
        names[f"layer{k}.neighbors.weight"] = Transposed(layer.lin_l.weight)

    def forward(x, arcs):
        for layer in layers:
            x = normalize(relu(layer(x, arcs.edge_index)))
        return classifier(x)

    return Reference(forward, names)


def sgc(facts):
    layer = SGConv(facts.features, facts.classes, K=3)
    return Reference(lambda x, arcs: layer(x, arcs.edge_index, arcs.edge_weight), of_linear("classifier", layer.lin))


def transformer(facts, gated=True):
    layers = (
        TransformerConv(facts.features, 6, heads=3, beta=gated),
        TransformerConv(18, facts.classes, heads=3, concat=False, beta=gated),
    )
    norm = torch.nn.LayerNorm(18)
    names, _ = of_norm("layer0.norm", norm)
    for k, layer in enumerate(layers):
        parts = {"query": layer.lin_query, "key": layer.lin_key, "value": layer.lin_value, "self": layer.lin_skip}
        for name, linear in parts.items():
            names[f"layer{k}.W_{name}"] = Transposed(linear.weight)
            names |= {} if name == "key" else {f"layer{k}.b_{name}": linear.bias}  # a bias of keys has no effect
        names |= {f"layer{k}.w_gate": layer.lin_beta.weight} if gated else {}

    def forward(x, arcs):
        hidden = layer_norm(layers[0](x, arcs.edge_index), (18,), norm.weight, norm.bias)
        return layers[1](hidden.relu(), arcs.edge_index)

    return Reference(forward, names)


def rgat(facts, kind="across", bases=0):
    """RGAT in PyTorch, with a query and a key per type."""
    inputs, names = facts.features or 15, {}
    sizes = (inputs, 3, 5), (15, 2, facts.classes)
    if not facts.features:
        names["embedding.weight"] = parameter(facts.nodes, inputs)
    for k, (rows, heads, columns) in enumerate(sizes):
        names[f"layer{k}.W"] = parameter(bases or facts.relations, rows, heads * columns)
        names |= {f"layer{k}.a": parameter(facts.relations, bases)} if bases else {}
        names[f"layer{k}.W_self"] = parameter(rows, heads * columns)
        names |= {f"layer{k}.{each}": parameter(facts.relations, heads, columns) for each in ("query", "key")}

    def layer(k, x, arcs):
        _, heads, columns = sizes[k]
        W, query, key = (names[f"layer{k}.{each}"] for each in ("W", "query", "key"))
        W = torch.einsum("rb,bio->rio", names[f"layer{k}.a"], W) if bases else W
        projected = torch.einsum("ni,rio->rno", x, W).reshape(facts.relations, len(x), heads, columns)
        (source, target), kinds = arcs.edge_index, arcs.edge_type
        scores = (projected[kinds, target] * query[kinds]).sum(-1) + (projected[kinds, source] * key[kinds]).sum(-1)
        group = target if kind == "across" else target * facts.relations + kinds
        shares = softmax(leaky_relu(scores, 0.2), group)
        sums = (x @ names[f"layer{k}.W_self"]).reshape(-1, heads, columns)
        return sums.index_add(0, target, shares[..., None] * projected[kinds, source])

    def forward(x, arcs):
        x = names["embedding.weight"] if x is None else x
        return layer(1, layer(0, x, arcs).flatten(1).relu(), arcs).mean(1)

    return Reference(forward, names)


def gatedgcn(facts, batch=True, residual=True):
    layers, columns = 3, 16
    linear = {"embedding": Linear(facts.features, columns), "classifier": Linear(columns, facts.classes)}
    names, state, norms = {}, {}, {}
    for name, layer in linear.items():
        names |= of_linear(name, layer)
    for k in range(layers):
        names |= {f"layer{k}.{each}": parameter(columns, columns) for each in "ABCDE"}
        rows = ["b"] + ([] if batch else ["bias"]) + ([] if k else ["w_arc", "b_arc"])
        names |= {f"layer{k}.{each}": parameter(columns) for each in rows}
        for each in [f"layer{k}.norm"] + ([f"layer{k}.arcs"] if k < layers - 1 else []) if batch else []:
            norms[each] = BatchNorm1d(columns)
            weights, running = of_norm(each, norms[each])
            names, state = names | weights, state | running
    if facts.relations:
        names["layer0.kinds"] = parameter(facts.relations, columns)

    def forward(x, arcs):
        h, (source, target) = linear["embedding"](x), arcs.edge_index
        weight = torch.ones(len(source)) if arcs.edge_weight is None else arcs.edge_weight
        f = weight[:, None] * names["layer0.w_arc"] + names["layer0.b_arc"]
        f = f + names["layer0.kinds"][arcs.edge_type] if facts.relations else f
        for k in range(layers):
            A, B, C, D, E, b = (names[f"layer{k}.{each}"] for each in "ABCDEb")
            z = (h @ D + b)[target] + (h @ E)[source] + f @ C
            gate, zeros = z.sigmoid(), torch.zeros_like(h)
            sums = zeros.index_add(0, target, gate * (h @ B)[source])
            y = h @ A + sums / (zeros.index_add(0, target, gate) + 1e-6)
            y = norms[f"layer{k}.norm"](y) if batch else y + names[f"layer{k}.bias"]
            h = y.relu() + (h if residual else 0)
            if k < layers - 1:
                z = norms[f"layer{k}.arcs"](z) if batch else z
                f = z.relu() + (f if residual else 0)
        return linear["classifier"](h)

    return Reference(forward, names, state)


#: CompGCN's compositions; correlation by Fourier transforms.
COMPOSITIONS = {
    "sub": torch.sub,
    "mult": torch.mul,
    "corr": lambda x, z: torch.fft.irfft(torch.fft.rfft(x).conj() * torch.fft.rfft(z), n=x.shape[-1]),
}


def compgcn(facts, composition="corr", bases=0, inverses=True, normalization="none"):
    columns, layers = 6, 3
    names, types = {"embedding.weight": parameter(facts.features or facts.nodes, columns)}, facts.relations
    names |= {"embedding.bias": parameter(columns)} if facts.features else {}
    names["relations.rows"] = parameter(bases or types, columns)
    names |= {"relations.coefficients": parameter(types, bases)} if bases else {}
    names["relations.weight"] = parameter(layers - 1, columns, columns)
    norms, state = [BatchNorm1d(columns) for _ in range(layers - 1)], {}
    for k in range(layers):
        outputs = columns if k < layers - 1 else facts.classes
        matrices = ("W_O", "W_I", "W_S") if inverses else ("W_O", "W_S")
        names |= {f"layer{k}.{each}": parameter(columns, outputs) for each in matrices}
        names[f"layer{k}.z_loop"] = parameter(columns)
        if k < layers - 1 and normalization == "batch":
            weights, running = of_norm(f"layer{k}.norm", norms[k])
            names, state = names | weights, state | running
        else:
            names[f"layer{k}.bias"] = parameter(outputs)
    compose = COMPOSITIONS[composition]

    def forward(x, arcs):
        (source, target), kinds = arcs.edge_index, arcs.edge_type
        degree = torch.zeros(facts.nodes).index_add(0, target, torch.ones(len(target)))
        scale = degree.clamp(min=1e-30) ** -0.5 * (degree > 0)
        scale = (scale[source] * scale[target])[:, None]
        h = names["embedding.weight"]
        h = x @ h + names["embedding.bias"] if facts.features else h
        z = names["relations.rows"]
        z = names["relations.coefficients"] @ z if bases else z
        for k in range(layers):
            own = {each: names.get(f"layer{k}.{each}") for each in ("W_O", "W_I", "W_S", "z_loop")}
            messages = compose(h[source], z[kinds])
            back = kinds >= types // 2 if inverses else torch.zeros_like(kinds, dtype=bool)
            there = messages @ own["W_O"]
            messages = torch.where(back[:, None], messages @ own["W_I"], there) if inverses else there
            found = compose(h, own["z_loop"]) @ own["W_S"]
            h = found.index_add(0, target, scale * messages)
            if k == layers - 1:
                return h + names[f"layer{k}.bias"]
            h = (norms[k](h) if normalization == "batch" else h + names[f"layer{k}.bias"]).relu()
            z = z @ names["relations.weight"][k]

    return Reference(forward, names, state)
