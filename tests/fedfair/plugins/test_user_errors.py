"""Mistakes in files of the user's: each comes as one sentence with file and line, before anything is trained."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from simulations.cli import app
from tests.for_each import for_each

RUN = ["run", "--dataset", "digits", "--set", "steps=3", "--set", "batch_size=32", "--set", "delta=1e-4"]


class Mistake(NamedTuple):
    """A file of the user's, the lines of its mistake, and the sentence that comes."""

    program: str
    said: str


MODEL = "from torch import nn\nimport torch\n"
NET = MODEL + """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        {init}
    def forward(self, x):
        x = x.flatten(1); {forward}
def mine(shape, hidden, classes):
    return Net()
"""


def net(forward: str, init: str = "self.out = nn.Linear(64, 10)") -> str:
    """Write a model of the user's."""
    return NET.format(init=init, forward=forward)


MODELS: dict[str, Mistake] = {
    "one output of ten": Mistake(MODEL + "def mine(shape, hidden, classes):\n    return nn.Sequential(nn.Flatten(), "
                                         "nn.Linear(64, 1))\n",
                                 "models/mine.py, line 3: the model gives numbers of the shape [1] for an example, but "
                                 "there are 10 classes: return one logit for each"),
    "too many outputs": Mistake(net("return self.out(x)", "self.out = nn.Linear(64, 11)"),
                                "models/mine.py, line 9: the model gives numbers of the shape [11] for an example, but "
                                "there are 10 classes"),
    "no class dimension": Mistake(net("return self.out(x).sum(1)"), "line 9: the model gives a number of the shape []"),
    "a dimension too many": Mistake(net("return self.out(x).unsqueeze(2)"), "numbers of the shape [10, 1]"),
    "a sum over the batch": Mistake(net("return self.out(x).sum(0, keepdim=True)"),
                                    "returns a tensor of the shape [1, 10] for 3 examples: keep the examples apart"),
    "a tuple": Mistake(net("return self.out(x), x"), "models/mine.py, line 9: the model returns a tuple: return one "
                                                     "tensor of logits, [examples, classes], for example its first"),
    "nothing": Mistake(net("self.out(x)"), "models/mine.py, line 9: the model returns a NoneType: return one tensor"),
    "integers": Mistake(net("return self.out(x).round().long()"), "the model's outputs, of the type torch.int64, do "
                                                                  "not "
                                                                  "depend on its parameters"),
    "detached": Mistake(net("return self.out(x).detach()"), "do not depend on its parameters"),
    "the end of the program": Mistake(net("import sys; sys.exit(0)"), "line 8, in forward: ends the whole program"),
    "nothing to train": Mistake(net("return x[:, :10]", "pass"), "do not depend on its parameters"),
    "a width that does not fit": Mistake(net("return self.out(x)", "self.out = nn.Linear(63, 10)"),
                                         "models/mine.py, line 8, in forward: RuntimeError: mat1 and mat2 shapes "
                                         "cannot "
                                         "be multiplied (3x64 and 63x10) (`x = x.flatten(1); return self.out(x)`); "
                                         "the model was given 3 "
                                         "examples of the shape [1, 8, 8]"),
    "layers that do not fit": Mistake(MODEL + "def mine(shape, hidden, classes):\n"
                                              "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.Linear(6, "
                                              "classes))\n",
                                      "models/mine.py, line 3: the model cannot take 3 examples of the shape [1, 8, "
                                      "8]: mat1"),
    "an image that is none": Mistake(MODEL + "def mine(shape, hidden, classes):\n    return nn.Conv2d(3, 2, 3)\n",
                                     "models/mine.py, line 3: the model cannot take 3 examples of the shape [1, 8, 8]"),
    "an exception in forward": Mistake(net("return self.ouch(x)"), "models/mine.py, line 8, in forward: "
                                                                   "AttributeError: "
                                                                   "'Net' object has no attribute 'ouch'"),
    "forward without x": Mistake(net("return 1").replace("forward(self, x)", "forward(self)"),
                                 "models/mine.py, line 9: the model cannot take 3 examples of the shape [1, 8, 8]: "
                                 "Net.forward() takes 1 positional argument but 2 were given"),
    "an exception while building": Mistake(MODEL + "def mine(shape, hidden, classes):\n    return nn.Linear(64, "
                                                   "hidden[9])",
                                           "models/mine.py, line 4, in mine: IndexError: "),
    "no super().__init__()": Mistake(net("return self.out(x)").replace("super().__init__()", "pass"),
                                     "models/mine.py, line 6, in __init__: AttributeError: cannot assign module "
                                     "before"),
    "the class instead of a model": Mistake(net("return self.out(x)").replace("return Net()", "return Net"),
                                            "models/mine.py, line 9: mine returns a type: it must return the model"),
    "no return": Mistake(MODEL + "def mine(shape, hidden, classes):\n    nn.Linear(64, classes)\n",
                         "models/mine.py, line 3: mine returns nothing: it must return the model, a torch.nn.Module"),
    "other arguments": Mistake(MODEL + "def mine(classes):\n    return nn.Linear(64, classes)\n",
                               "models/mine.py, line 3: mine is called with the shape of one example, the layer widths "
                               "and the number of classes, but with these it fails: too many positional arguments"),
    "another name": Mistake(MODEL + "def other(shape, hidden, classes):\n    return nn.Linear(64, classes)\n",
                            "models/mine.py does not define mine: it must define a function of that name"),
    "an import of what is not there": Mistake("import torchvisionx\n", "models/mine.py, line 1, cannot import what it "
                                              "needs: No module named 'torchvisionx': install it, or correct the name"),
    "an import of a name that is not there": Mistake("from torch.nn import Lineer\n",
                                                     "models/mine.py, line 1, cannot import what it needs: cannot "
                                                     "import"
                                                     " name 'Lineer' from 'torch.nn'"),
    "a syntax error": Mistake("def mine(shape, hidden, classes)\n    return 1\n",
                              "models/mine.py, line 1, is not valid Python: expected ':' (`def mine(shape, hidden, "
                              "classes)`); correct it"),
    "an indentation error": Mistake("def mine(shape, hidden, classes):\nreturn 1\n", "line 2, is not valid Python"),
    "examples that see each other": Mistake(net("return self.out(x - x.mean(0))"),
                                            "models/mine.py, line 9: the model gives an example another output when it "
                                            "is alone in its batch: its examples interact"),
    "weights that are no numbers": Mistake(net("return self.out(x)", "self.out = nn.Linear(64, 10); "
                                               "nn.init.constant_(self.out.weight, float('nan'))"),
                                           "models/mine.py, line 9: the parameter out.weight of the model has values "
                                           "that are no finite numbers before any training"),
    "outputs that are no numbers": Mistake(net("return torch.log(self.out(x).neg().abs().neg())"),
                                           "line 9: the model's outputs for made-up examples are no numbers (NaN)"),
    "complex outputs": Mistake(net("return self.out(x) * 1j"), "line 9: the model's outputs are complex"),
    "complex weights": Mistake(net("return self.out(x * 1j)", "self.out = nn.Linear(64, 10, dtype=torch.cfloat)"),
                               "line 9: the parameter out.weight of the model is complex"),
    "a model in itself": Mistake(net("return self.out(x)", "self.out = nn.Sequential(nn.Linear(64, 10)); "
                                     "self.out.append(self)"), "line 9: the model contains itself"),
    "a batch taken for time": Mistake(net("return self.out(self.mix(x.unsqueeze(-1))[0][:, -1])",
                                          "self.mix = nn.LSTM(1, 8); self.out = nn.Linear(8, 10)"),
                                      "its examples interact, so clipping one example's gradient bounds nothing"),
}

METHOD = """from dataclasses import dataclass
import torch
from fedfair.mechanisms.clipping import Flat, GlobalAdapt, PerGroup, Reweighted
from fedfair.mechanisms.counting import GroupSizes
from strategies import Strategy
class Mine(Strategy):
"""


def method(*lines: str, rule: str = "return Flat(1.0)", before: str = "") -> str:
    """Write a method of the user's, whose rule is in the lines 7 and 8."""
    text = METHOD + f"    def rule(self):\n        {rule}\n" + "".join(f"    {line}\n" for line in lines)
    return text.replace("class Mine", f"{before}class Mine")


def own_rule(coefficients: str, bounds: str = "return (1.0,) * groups", frozen: str = "(frozen=True)") -> str:
    """Write a method with a rule of its own, whose coefficients are in the lines 9 and 10."""
    return method(rule="return Soft(1.0)", before=f"@dataclass{frozen}\nclass Soft:\n    clip_norm: float\n"
                  f"    def coefficients(self, norms, groups):\n        {coefficients}\n"
                  f"    def group_sensitivities(self, groups):\n        {bounds}\n")


def own_query(counts: str) -> str:
    """Write a method with a query of its own, whose counts are in the lines 9 and 10."""
    return method("def query(self):", "    return Many(1.0)", before="@dataclass(frozen=True)\nclass Many:\n"
                  "    at: float\n    def counts(self, norms, groups, number_of_groups):\n"
                  f"        {counts}\n")


METHODS: dict[str, Mistake] = {
    "a typo in rule": Mistake(method(rule="return Flat(self.trainin.clip_norm)"),
                              "mine.py, line 8, in rule: AttributeError: 'Mine' object has no attribute 'trainin' "
                              "(`return Flat(self.trainin.clip_norm)`)"),
    "a rule that returns nothing": Mistake(method(rule="Flat(1.0)"), "mine.py, line 7: rule of Mine returns nothing: "
                                                                     "it "
                                           "must return a clip rule, for example Flat(self.training.clip_norm)"),
    "a rule that returns a number": Mistake(method(rule="return 1.0"), "line 7: rule of Mine returns a float"),
    "a rule that returns the class": Mistake(method(rule="return Flat"), "line 7: rule of Mine returns the class "
                                                                         "Flat itself"),
    "no rule": Mistake(METHOD + "    pass\n", "mine.py, line 6: it does not define rule: every method needs def rule"),
    "a bound of zero": Mistake(method(rule="return Flat(0)"), "mine.py, line 8, in rule: clip_norm of the clip rule "
                                                              "Flat "
                                                              "is 0: it must be a finite number above 0"),
    "a negative bound": Mistake(method(rule="return Flat(-1.0)"), "clip_norm of the clip rule Flat is -1.0"),
    "a bound that is no number": Mistake(method(rule="return Flat(float('nan'))"), "clip rule Flat is nan"),
    "a bound without end": Mistake(method(rule="return Flat(float('inf'))"), "clip rule Flat is inf"),
    "a text for a bound": Mistake(method(rule="return Flat('1')"), "clip rule Flat is '1'"),
    "a tensor for a bound": Mistake(method(rule="return Flat(torch.tensor(1.0))"),
                                    "is a tensor of the shape []: it must be a finite number above 0, for example "
                                    "float(x) of a tensor x"),
    "a tensor for bounds": Mistake(method(rule="return PerGroup(torch.ones(10))"), "for example tuple(x.tolist())"),
    "a negative bound for one group": Mistake(method(rule="return PerGroup((1.0,) * 9 + (-5.0,))"),
                                              "mine.py, line 8, in rule: clip_norms of the clip rule PerGroup is "
                                              "(1.0,"),
    "bounds for too few groups": Mistake(method(rule="return PerGroup((1.0, 1.0))"),
                                         "mine.py, line 7: group_sensitivities of PerGroup gives (1.0, 1.0) for 10"),
    "a negative weight": Mistake(method(rule="return Reweighted((1.0,) * 10, (-1.0,) * 10)"), "numbers of at least 0"),
    "a bound of zero to scale to": Mistake(method(rule="return GlobalAdapt(1.0, 0.0)"), "bound of the clip rule "
                                                                                        "Global"),
    "an exception in prepare": Mistake(method("def prepare(self):", "    self.bound = 1 / 0"),
                                       "mine.py, line 10, in prepare: ZeroDivisionError: division by zero"),
    "an exception in query": Mistake(method("def query(self):", "    return Above(1.0)"),
                                     "mine.py, line 10, in query: NameError: name 'Above' is not defined"),
    "a query that is none": Mistake(method("def query(self):", "    return 3"), "line 9: query of Mine returns a int"),
    "an exception in learn": Mistake(method("def query(self):", "    return GroupSizes()",
                                            "def learn(self, counts, expected_batch):", "    counts.lenght()"),
                                     "mine.py, line 12, in learn: AttributeError: 'Tensor' object has no attribute"),
    "learn that takes less": Mistake(method("def query(self):", "    return GroupSizes()", "def learn(self, counts):",
                                            "    pass"), "mine.py, line 11: learn takes (self, counts): the round "
                                                         "calls "
                                                         "it as learn(self, counts, expected_batch)"),
    "rule that takes more": Mistake(method().replace("rule(self)", "rule(self, groups)"), "line 7: rule takes (self, "
                                                                                          "gro"),
    "rule that is no method": Mistake(METHOD + "    rule = Flat(1.0)\n", "mine.py, line 6: rule is a Flat: define it "
                                                                         "as"),
    "learn that leaves its state": Mistake(method("def query(self):", "    return GroupSizes()",
                                                  "def learn(self, counts, expected_batch):", "    self.bound = 2"),
                                           "mine.py, line 11: Mine.learn changes 'bound', which `state` does not"),
    "learn that ends at zero": Mistake(method(
        "state = ('bound',)", "def prepare(self):", "    self.bound = 1.0", "def query(self):",
        "    return GroupSizes()", "def learn(self, counts, expected_batch):", "    self.bound = float(counts.sum())",
        rule="return Flat(self.bound)"), "line 8, in rule: clip_norm of the clip rule Flat is 0.0"),
    "a state that is not set": Mistake(method("state = ('bound',)"), "does not set 'bound', which `state` names"),
    "a state that is a text": Mistake(method("state = 'bound'"), "mine.py, line 6: state is 'bound': give a tuple of"),
    "options of another kind": Mistake(method("class Options:", "    pass"), "Options is no subclass of strategies"),
    "an exception in another hook": Mistake(method("def rates(self):", "    return self.nothing"),
                                            "mine.py, line 10, in rates: AttributeError"),
    "an error of the method's own": Mistake(method("def prepare(self):", "    raise ValueError('bound is 3: take 4')"),
                                            "mine.py, line 10, in prepare: bound is 3: take 4"),
    "no strategy": Mistake("x = 1\n", "mine.py defines 0 strategies: it must define exactly one subclass"),
    "a syntax error": Mistake(method(rule="return Flat(1.0"), "mine.py, line 8, is not valid Python: '(' was never "
                                                              "clos"),
    "an import of what is not there": Mistake("import nothing_like_this\n", "mine.py, line 1, cannot import what it"),
    "an exception at the top": Mistake("x = 1 / 0\n", "mine.py, line 1: ZeroDivisionError: division by zero (`x = 1 "
                                                      "/ 0`)"),
    "a rule that exceeds its promise": Mistake(own_rule("return torch.ones_like(norms)"),
                                               "mine.py, line 9: coefficients of Soft scales a gradient of the norm "
                                               "1e+30 "
                                               "to 1e+30, but group_sensitivities promises at most 1"),
    "a rule of the batch's largest": Mistake(own_rule("return 1.0 / norms.max().expand(len(norms))"),
                                             "line 9: coefficients of Soft gives a gradient another factor when the"),
    "factors that are nothing": Mistake(own_rule("1.0 / norms"), "line 9: coefficients of Soft returns nothing for"),
    "factors of another shape": Mistake(own_rule("return norms.sum()"), "a tensor of the shape [] for"),
    "factors that divide by zero": Mistake(own_rule("return 1.0 / norms"), "gives the factor inf to a gradient of the "
                                                                          "norm 0: every factor must be finite"),
    "an exception in coefficients": Mistake(own_rule("return norms.clmp(1)"),
                                            "mine.py, line 10, in coefficients: AttributeError"),
    "a negative sensitivity": Mistake(own_rule("return norms * 0", "return (-1.0,) * groups"),
                                      "line 11: group_sensitivities of Soft gives (-1.0,"),
    "one sensitivity for all": Mistake(own_rule("return norms * 0", "return 1.0"),
                                       "gives 1.0 for 10 groups: it must be a tuple of one number of at least 0 for "
                                       "each"),
    "a rule without a method": Mistake(own_rule("return norms").replace("group_sensitivities", "sensitivities"),
                                       "rule of Mine returns a Soft"),
    "a rule that can be changed": Mistake(own_rule("return norms * 0", frozen=""), "decorate it with "
                                                                                   "@dataclass(frozen"),
    "a rule that holds a list": Mistake(own_rule("return norms * 0").replace("Soft(1.0)", "Soft([1.0])"),
                                        "clip_norm of the clip rule Soft is a list: it travels as JSON"),
    "a query that counts twice": Mistake(own_query("return torch.full((2,), float(len(norms)))"),
                                         "line 9: counts of Many goes from [0.0, 0.0] to [1.0, 1.0] with one record"),
    "a query of the records' length": Mistake(own_query("return norms"), "they must keep their shape"),
    "counts that are nothing": Mistake(own_query("len(norms)"), "line 9: counts of Many returns nothing"),
}


def entered(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder of one mistake's own, and go there."""
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def said(folder: Path, file: str, program: str, *arguments: str) -> str:
    """Return what a run says that uses a file of the user's: one sentence, with exit code 2."""
    path = folder / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(program)
    result = CliRunner().invoke(app, [*RUN, *arguments])
    assert result.exit_code == 2, (result.output, result.exception)
    assert "Traceback" not in result.output
    sentence = result.stderr.strip()
    assert sentence.startswith("Error: ")
    assert "\n" not in sentence
    return sentence


@for_each("name", MODELS)
def test_a_mistake_in_a_model_is_one_sentence(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = entered(tmp_path / name, monkeypatch)
    assert MODELS[name].said in said(folder, "models/mine.py", MODELS[name].program, "--strategy", "dpsgd", "--set",
                                     "model=mine")


@for_each("name", METHODS)
def test_a_mistake_in_a_method_is_one_sentence(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = entered(tmp_path / name, monkeypatch)
    assert METHODS[name].said in said(folder, "mine.py", METHODS[name].program, "--strategy", "mine")


def test_what_a_file_says_of_a_record_stays_on_its_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made-up rows pass; at a record the model fails, and the server hears the line alone."""
    monkeypatch.chdir(tmp_path)
    program = net("assert x.min() < 0 or x.max() < 0.5, f'cell {x.max()}'; return self.out(x)")
    sentence = said(tmp_path, "models/mine.py", program, "--strategy", "sgd", "--set", "model=mine")
    assert "models/mine.py, line 8, in forward, raises AssertionError" in sentence.split("Error: ")[-1]
    assert "cell 1" not in sentence.split("Error: ")[-1]
