"""RDF graphs in N-Triples, parsed by Oxigraph, as typed arcs for relational models.

M. Schlichtkrull et al., "Modeling Relational Data with Graph Convolutional Networks", 2018 (R-GCN): AIFB, MUTAG, BGS,
AM, with the splits of P. Ristoski, G. de Vries, H. Paulheim, "A Collection of Benchmark Datasets for Systematic
Evaluations of Machine Learning on the Semantic Web", 2016.
"""

from __future__ import annotations

import re
from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyoxigraph

from mgg.errors import InputError
from mgg.graph.check import split_vector
from mgg.graph.io.columns import what_is_read
from mgg.graph.io.endings import in_words, packed
from mgg.graph.io.text import LineBlock, blocks, lines
from mgg.graph.sources import CHUNK_ARCS, Arcs, ArcStream, StreamedGraph, loader

SUFFIXES = packed(".nt")
#: First part of the names of label tables: all labeled entities, training entities, test entities.
_COMPLETE, _TRAIN, _TEST = "completeDataset", "trainingSet", "testSet"
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}(\.[0-9]{0,18})?")


@loader("rdf", *SUFFIXES)
def load(path: Path) -> StreamedGraph:
    """Read an N-Triples file (compressed or not), or a folder with one and, if there are any, tables of labels.

    The nodes are the distinct subjects and objects, literals included, in the byte order of their N-Triples form; the R
    relations are the distinct predicates in byte order. A triple (s, p, o) gives two arcs, as in R-GCN: s -> o of type
    p and o -> s of type R + p, so AIFB's 29,043 triples of 45 relations are 58,086 arcs of 90 types. A triple that is
    listed twice gives its arcs twice. There are no features.

    ``completeDataset*.tsv`` has the classes; ``trainingSet*.tsv`` and ``testSet*.tsv`` also give the split. Their first
    line names the columns: the class is the first ``label_...``, the entity is the column that is neither a label nor
    ``id``; other columns of labels are listed as ignored. Classes are numbered in the byte order of their names; names
    that are equal numbers (``0`` and ``0.0``) are one class with the first of these names. Entities in no table are
    unlabeled.

    The names are in memory, and 12 bytes per triple.

    Raises:
        InputError: names the file and line that is no triple, or the table and line of an entity that is not in the
            graph or has two classes.
    """
    file = _find(path)
    graph = _Graph.read(file)
    order, relation_order = _ranks(graph.entities), _ranks(graph.relations)
    if not len(order):
        raise InputError(f"{file}: holds no triple")
    subjects, predicates, objects = (np.frombuffer(ids, np.int32) for ids in graph.triples)

    def read() -> Iterator[Arcs]:
        for lo in range(0, len(subjects), CHUNK_ARCS // 2):
            part = slice(lo, lo + CHUNK_ARCS // 2)
            s, p, o = order[subjects[part]], relation_order[predicates[part]], order[objects[part]]
            types = np.concatenate([p, p + np.int32(len(relation_order))])
            yield Arcs(np.concatenate([o, s]), np.concatenate([s, o]), types=types)

    arcs = ArcStream(read, len(order), relations=2 * len(relation_order))
    if not path.is_dir():
        return StreamedGraph(arcs)
    labels, splits, classes, of_labels = _labels(file.parent, graph.entities, order)
    return StreamedGraph(arcs, None, labels, splits, classes, columns=what_is_read(nodes=of_labels))


def _find(path: Path) -> Path:
    if not path.is_dir():
        return path
    found = [file for file in path.rglob("[!.]*") if file.name.lower().endswith(SUFFIXES) and file.is_file()]
    if len(found) != 1:
        raise InputError(f"{path}: expected one file that ends in {in_words(SUFFIXES)}, found {len(found)}")
    return found[0]


@dataclass(frozen=True)
class _Graph:
    """Numbered triples; numbers follow the order in which names appear.

    Attributes:
        entities: N-Triples form of each subject or object -> its number.
        relations: predicate -> its number.
        triples: int32 subjects, predicates, objects.
    """

    entities: dict[str, int] = field(default_factory=dict)
    relations: dict[str, int] = field(default_factory=dict)
    triples: tuple[array, array, array] = field(default_factory=lambda: (array("i"), array("i"), array("i")))

    @classmethod
    def read(cls, file: Path) -> _Graph:
        graph = cls()
        for block in blocks(file):
            graph.add(block)
        return graph

    def add(self, block: LineBlock) -> None:
        entities, relations = self.entities, self.relations
        subjects, predicates, objects = self.triples
        try:
            for triple in _parsed(block.data):
                subjects.append(entities.setdefault(str(triple.subject), len(entities)))
                predicates.append(relations.setdefault(str(triple.predicate), len(relations)))
                objects.append(entities.setdefault(str(triple.object), len(entities)))
        except SyntaxError as error:
            raise _misformed(block, error) from None


def _misformed(block: LineBlock, error: SyntaxError) -> InputError:
    """Return the error for the first line that fails to parse alone: the parser may name the line after it."""
    line = block.first + (error.lineno or 1) - 1
    for number, data in enumerate(block.data.split(b"\n"), block.first):
        try:
            deque(_parsed(data), maxlen=0)
        except SyntaxError as alone:
            line, error = number, alone
            break
    message = " ".join(str(error.msg).split())
    return InputError(f"{block.file}: line {line}: no N-Triples statement: {message.partition(': ')[2] or message}")


def _parsed(data: bytes) -> Iterator[pyoxigraph.Quad]:
    """Parse leniently: IRIs are only names here, so the spaces in those of old data sets do no harm."""
    return pyoxigraph.parse(data, format=pyoxigraph.RdfFormat.N_TRIPLES, lenient=True)


def _ranks(names: dict[str, int]) -> np.ndarray:
    """Return the rank of each name in byte order, int32; for UTF-8, that is the order of code points."""
    ranks = np.empty(len(names), np.int32)
    ranks[[names[name] for name in sorted(names)]] = np.arange(len(names), dtype=np.int32)
    return ranks


@dataclass(frozen=True)
class _Table:
    """A table of labels: line, node and class name of each entity, and the columns read and ignored."""

    file: Path
    label: str
    ignored: list[str]
    rows: list[tuple[int, int, str]]

    @property
    def nodes(self) -> np.ndarray:
        return np.array([node for _, node, _ in self.rows], np.int64)


def _labels(
    folder: Path, entities: dict[str, int], order: np.ndarray
) -> tuple[np.ndarray | None, np.ndarray | None, int | None, dict[str, Any]]:
    """Return labels, splits and number of classes from the folder's tables, and the columns read and ignored."""
    tables = {}
    for start in (_COMPLETE, _TRAIN, _TEST):
        files = sorted(folder.glob(f"{start}*.tsv"))
        if len(files) > 1:
            raise InputError(f"{folder}: {len(files)} tables {start}*.tsv; leave the one to use")
        if files:
            tables[start] = _table(files[0], entities, order)
    if not tables:
        return None, None, None, {}
    splits = None
    if _TRAIN in tables and _TEST in tables:
        train, test = tables[_TRAIN], tables[_TEST]
        splits = split_vector(len(order), str(test.file), train=train.nodes, test=test.nodes)
    labels, classes = _classes(list(tables.values()), len(order))
    of_labels = {
        "label": ", ".join(sorted({table.label for table in tables.values()})),
        "split": [tables[start].file.name for start in (_TRAIN, _TEST)] if splits is not None else [],
        "ignored": sorted({name for table in tables.values() for name in table.ignored}),
    }
    return labels, splits, classes, of_labels


def _classes(tables: list[_Table], nodes: int) -> tuple[np.ndarray, int]:
    """Combine all tables: return labels int32 [nodes] and the number of classes."""
    first: dict[Decimal | str, str] = {}
    for name in sorted({name for table in tables for _, _, name in table.rows}):
        first.setdefault(_value(name), name)
    names = list(first.values())
    values = {value: number for number, value in enumerate(first)}
    labels = np.full(nodes, -1, np.int32)
    for table in tables:
        for line, node, name in table.rows:
            number = values[_value(name)]
            if labels[node] not in (-1, number):
                raise InputError(f"{table.file}: line {line}: class {name}; before, it was {names[labels[node]]}")
            labels[node] = number
    return labels, len(names)


def _value(name: str) -> Decimal | str:
    """Return the identity of a class name: its number if it is one, else the name."""
    return Decimal(name) if _NUMBER.fullmatch(name) else name


def _table(file: Path, entities: dict[str, int], order: np.ndarray) -> _Table:
    numbered = [(number, line.split("\t")) for number, line in lines(file) if line.strip()]
    header = numbered[0][1] if numbered else []
    label = next((i for i, name in enumerate(header) if name.startswith("label_")), None)
    keys = [i for i, name in enumerate(header) if name not in ("", "id") and not name.startswith("label_")]
    if label is None or len(keys) != 1:
        raise InputError(f"{file}: line 1: expected columns id, label_... and one more, found {', '.join(header)}")
    rows = []
    for number, row in numbered[1:]:
        if len(row) != len(header) or not row[label]:
            raise InputError(f"{file}: line {number}: expected {len(header)} fields with a class, found {len(row)}")
        entity = entities.get(f"<{row[keys[0]]}>")
        if entity is None:
            raise InputError(f"{file}: line {number}: {row[keys[0]]} is not in the graph")
        rows.append((number, int(order[entity]), row[label]))
    return _Table(file, header[label], [name for i, name in enumerate(header) if i not in (label, keys[0])], rows)
