"""A fit's model in ONNX: lookups in a table of scores, which any ONNX runtime computes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedfair.datasets.columns.cell import Column, truth_values
from fedfair.datasets.features.new_rows import columns_of
from fedfair.plugins.lazy import library
from simulations.fitting.fit_folder import Story
from simulations.fitting.standalone_program import Scores, described, tables

_OPERATORS, _OPERATORS_ML = 18, 2
"""Versions of the operators: of 2022, so that runtimes of any age know them."""

_OWN = "fedfair:"
"""Begins the names of values inside the model, with "_" behind it as long as a column's name begins so."""


def onnx_model(story: Story) -> bytes:
    """Return the model of a fit in ONNX.

    It has an input for each column, by its name: numbers as double `[n, 1]`, NaN or infinite where one is missing, and
    categories as string `[n, 1]`, "" where one is missing. Its outputs are `label`, the names of the predicted classes
    `[n]`, and `probabilities`, of each class, `[n, classes]`; a column of either name puts "_" behind that of the
    output. Spaces around a category count, and numbers are numbers, not text: who calls the model reads the cells, as
    `read` of the fit's predict.py does by the description that is the model's property "fedfair.rows".

    Raises:
        ValueError: If the package onnx is not installed.
    """
    onnx = library("onnx", "onnx")
    numbers, categories, constant = tables(story)
    columns = {*numbers, *categories}
    graph = _Graph(onnx, columns)
    found = [graph.number(name, *numbers[name]) for name in numbers]
    read = {column.name: column for column in columns_of(story.description.encoding)}
    found += [graph.category(read[name], categories[name]) for name in categories]
    total = graph.node("Sum", [*found, graph.constant(np.array([constant]))])
    label, probabilities = _free("label", columns), _free("probabilities", columns)
    graph.node("Gather", [graph.constant(np.array(story.description.labels, dtype=object)),
                          graph.node("ArgMax", [total], axis=1, keepdims=0)], label)
    graph.node("Softmax", [total], probabilities, axis=1)
    outputs: list[tuple[str, int, list[Any]]] = [
        (label, onnx.TensorProto.STRING, ["n"]), (probabilities, onnx.TensorProto.DOUBLE, ["n", len(constant)])]
    rows = json.dumps(described(story)["columns"])
    return graph.model(outputs, rows, f"Scorecard of {story.name}: epsilon {story.epsilon:.4g} at delta "
                       f"{story.ledger.delta:g} ({story.ledger.guarantee})")


class _Graph:
    """A graph of operators that grows by one value at a time; each method returns the name of what it adds."""

    def __init__(self, onnx: Any, columns: Iterable[str]) -> None:
        self.own = _free(_OWN, {name[:end] for name in columns for end in range(len(name) + 1)})
        self.onnx, self.nodes, self.inputs, self.constants = onnx, [], [], []  # type: ignore[var-annotated]

    def number(self, name: str, ends: Sequence[float], bins: Sequence[Scores], missing: Scores) -> str:
        """Add what the bins of a column of numbers add to the scores, `[n, classes]`."""
        value = self._input(name, self.onnx.TensorProto.DOUBLE)
        reached = self.node("GreaterOrEqual", [value, self.constant(np.array([ends]).reshape(1, -1))])
        place = self.node("ReduceSum", [self.node("Cast", [reached], to=self.onnx.TensorProto.INT64),
                                        self.constant(np.array([1]))], keepdims=0)
        none = self.node("Or", [self.node("IsNaN", [value]), self.node("IsInf", [value])])
        row = self.node("Where", [self.node("Squeeze", [none, self.constant(np.array([1]))]),
                                  self.constant(np.array(len(bins))), place])
        return self.node("Gather", [self.constant(np.array([*bins, missing])), row])

    def category(self, column: Column, scores: Mapping[str, Scores]) -> str:
        """Add what the categories of a column add to the scores, `[n, classes]`; nothing for one without scores."""
        value = self._input(column.name, self.onnx.TensorProto.STRING)
        places = {category: place for place, category in enumerate(scores)}
        meant = {text: column.category(text) for text in _writings(column)}
        keys = {text: places.get(name or "", len(places)) for text, name in meant.items()}
        row = self.node("LabelEncoder", [value], domain="ai.onnx.ml", keys_strings=list(keys),
                        values_int64s=list(keys.values()), default_int64=places.get(column.unknown or "", len(places)))
        table = np.array(list(scores.values()))
        return self.node("Gather", [self.constant(np.append(table, np.zeros((1, table.shape[1])), 0)),
                                    self.node("Squeeze", [row, self.constant(np.array([1]))])])

    def node(self, operator: str, inputs: Sequence[str], output: str = "", domain: str = "", **settings: Any) -> str:
        """Add an operator."""
        output = output or f"{self.own}{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operator, inputs, [output], domain=domain, **settings))
        return output

    def constant(self, values: NDArray[Any]) -> str:
        """Add a constant."""
        name = f"{self.own}constant {len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(values, name))
        return name

    def model(self, outputs: Iterable[tuple[str, int, list[Any]]], rows: str, words: str) -> bytes:
        """Return the file of the graph, of which ONNX's checker found that it is whole.

        Args:
            outputs: Name, type and shape of each output.
            rows: How cells become inputs, in JSON.
            words: What the model is, in words.
        """
        helper = self.onnx.helper
        graph = helper.make_graph(self.nodes, "scorecard", self.inputs, [helper.make_tensor_value_info(*output)
                                  for output in outputs], self.constants)
        model = helper.make_model(graph, producer_name="fedfair", doc_string=words, opset_imports=[
            helper.make_opsetid("", _OPERATORS), helper.make_opsetid("ai.onnx.ml", _OPERATORS_ML)], ir_version=8)
        helper.set_model_props(model, {"fedfair.rows": rows})
        self.onnx.checker.check_model(model)
        return bytes(model.SerializeToString())

    def _input(self, name: str, kind: int) -> str:
        """Add a column."""
        self.inputs.append(self.onnx.helper.make_tensor_value_info(name, kind, ["n", 1]))
        return name


def _writings(column: Column) -> list[str]:
    """Return the usual ways to write the categories of a column that are not unknown, and a missing value."""
    known = column.known or ()
    usual = [way for word in truth_values(known) for way in (word, word.capitalize(), word.upper())]
    decimals = [f"{name}.0" for name in (*known, *sorted(column.missing)) if name.removeprefix("-").isdigit()]
    return [text for text in dict.fromkeys([*known, *sorted(column.missing), *usual, *decimals])
            if column.category(text) is not None]


def _free(name: str, taken: Iterable[str]) -> str:
    """Return a name that is not taken: with "_" behind it, if need be."""
    while name in {*taken}:
        name += "_"
    return name
