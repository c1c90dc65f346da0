"""A saved model predicts what the run predicted, as scikit-learn and fairlearn use it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file
from sklearn.base import clone
from sklearn.metrics import accuracy_score, recall_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from simulations import Experiment, Result, run
from simulations.benchmarks.people import experiment as people
from simulations.plans.compare import compare, experiments
from simulations.results.classifier import TrainedClassifier
from simulations.results.fairlearn_frame import metric_frame, predictions_of_test
from simulations.results.result import save_comparison


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Run with a threshold on a small file of two groups."""
    draws = np.random.default_rng(0)
    sex, years = draws.choice(["f", "m"], 600), draws.integers(0, 30, 600)
    hired = years + 6 * (sex == "m") + draws.normal(0, 4, 600) > 17
    file = tmp_path_factory.mktemp("data") / "people.csv"
    pd.DataFrame({"years": years, "sex": sex, "hired": hired.astype(int)}).to_csv(file, index=False)
    return run(Experiment(csv=str(file), label="hired", group="sex", attribute_in_model=True, model="logistic",
                          epochs=4, batch_size=64, learning_rate=0.5, strategy="sgd", threshold="toc", seed=2))


def final(result: Result, metric: str, group: str) -> float:
    rows = result.metrics.query("split == 'test' and round == round.max()").set_index(["group", "metric"])["value"]
    return float(rows[group, metric])


def test_a_loaded_model_decides_as_the_run_did_threshold_included(result: Result, tmp_path: Path) -> None:
    result.save(tmp_path / "run")
    loaded, test = TrainedClassifier.load(tmp_path / "run"), result.data.test
    names = [test.names[k] for k in test.group]
    predicted = loaded.predict(test.x.numpy(), names)
    assert accuracy_score(test.y, predicted) == pytest.approx(final(result, "accuracy", "all"))
    assert (predicted != loaded.predict_proba(test.x.numpy()).argmax(1)).any()  # the threshold has a part in it
    assert np.array_equal(predicted, TrainedClassifier.of(result).predict(test.x.numpy(), names))
    with pytest.raises(ValueError, match="give sensitive_features"):
        loaded.predict(test.x.numpy())
    surest = int(loaded.predict_proba(test.x.numpy())[:, 1].argmax())
    doubtful = int((predicted != loaded.predict_proba(test.x.numpy()).argmax(1)).argmax())
    for name, message in (("x", "row 2 depends, 'x': known are f, m"), (None, "row 2 has no group"),
                          (np.nan, "row 2 has no group")):
        assert loaded.predict(test.x.numpy()[[surest]], [name]) == [predicted[surest]]
        with pytest.raises(ValueError, match=message):
            loaded.predict(test.x.numpy()[[surest, doubtful]], [name, name])


def test_the_rows_of_a_table_are_predicted_as_they_stand(result: Result, tmp_path: Path) -> None:
    result.save(tmp_path / "run")
    loaded, test = TrainedClassifier.load(tmp_path / "run"), result.data.test
    rows = pd.read_csv(str(result.experiment.csv)).iloc[test.records.numpy()]
    predicted = loaded.predict(rows.drop(columns="hired"), rows["sex"])
    assert np.array_equal(predicted, loaded.predict(test.x.numpy(), rows["sex"]))
    assert accuracy_score(rows["hired"].map(str), np.array(loaded.labels)[predicted]) == pytest.approx(
        final(result, "accuracy", "all"))
    with pytest.raises(ValueError, match="the rows have no column 'years'"):
        loaded.predict_proba(rows[["sex"]])
    for moment in (pd.Timestamp("2020-01-01"), pd.Timedelta(days=3)):  # of which pandas has numbers of many units
        with pytest.raises(ValueError, match=r"column 'years' has .* in row 1 .*, where the model needs a number"):
            loaded.predict_proba(rows.assign(years=moment))


@pytest.mark.usefixtures("keyed_by_seed")
def test_the_favourable_class_goes_by_its_name(tmp_path: Path) -> None:
    draws = np.random.default_rng(1)
    sex, years = draws.choice(["f", "m"], 400), draws.integers(0, 30, 400)
    answer = np.where(years + 6 * (sex == "m") + draws.normal(0, 4, 400) > 17, "approved", "denied")
    file = tmp_path / "people.csv"
    pd.DataFrame({"years": years, "sex": sex, "answer": answer}).to_csv(file, index=False)
    by_name, by_number, other = (run(Experiment(
        csv=str(file), label="answer", group="sex", model="logistic", epochs=4, batch_size=64, learning_rate=0.5,
        strategy="sgd", threshold="toc", favourable=favourable)) for favourable in ("approved", 0, None))
    pd.testing.assert_frame_equal(by_name.metrics, by_number.metrics)
    assert final(by_name, "positive_rate", "m") != final(other, "positive_rate", "m")
    folder = by_name.save(tmp_path / "run")
    (saved,) = json.loads((folder / "thresholds.json").read_text()).values()
    assert saved["favourable"] == "approved"
    loaded = TrainedClassifier.load(folder)
    assert by_name.threshold is not None
    assert loaded.threshold == by_name.threshold.rule
    assert loaded.labels == ("approved", "denied")


OWN = """
import torch
from torch import nn

class random_features(nn.Module):
    def __init__(self, shape, hidden, classes):
        super().__init__()
        self.register_buffer("directions", torch.randn(shape.numel(), 8))
        self.inner, self.again, self.last = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, classes)
        self.again.weight = self.inner.weight

    def forward(self, x):
        return self.last(self.again(torch.cos(self.inner(torch.cos(x.flatten(1) @ self.directions)))))
"""


def test_a_model_of_ones_own_comes_back_with_its_buffers_and_shared_weights(tmp_path: Path,
                                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    file = tmp_path / "models" / "random_features.py"
    file.write_text(OWN)
    result = run(Experiment(model="random-features", strategy="sgd", steps=3, seed=5))
    result.save("run")
    x = result.data.test.x.numpy()
    assert np.array_equal(TrainedClassifier.load("run").predict_proba(x), TrainedClassifier.of(result).predict_proba(x))
    file.write_text(OWN.replace("8, classes", "8, classes, bias=False"))
    with pytest.raises(ValueError, match="the model 'random-features' has other parameters here than those that were"):
        TrainedClassifier.load("run")


def test_scikit_learn_takes_it_as_a_classifier(result: Result) -> None:
    plain = TrainedClassifier.of(result)
    plain.threshold = None
    x, y = result.data.test.x.numpy(), result.data.test.y.numpy()
    pipeline = make_pipeline(FunctionTransformer(), plain).fit(x, y)
    assert pipeline.score(x, y) == pytest.approx(accuracy_score(y, plain.predict(x)))
    assert list(plain.classes_) == [0, 1]
    assert np.allclose(plain.predict_proba(x).sum(1), 1)
    assert np.array_equal(clone(plain).predict(x), plain.predict(x))


def test_a_folder_without_the_model_that_is_asked_for_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no model\.safetensors"):
        TrainedClassifier.load(tmp_path)
    results = compare(experiments(["dpsgd"], [0, 1], None, {"hidden": [4], "steps": 1}))
    save_comparison(results, {"strategies": ["dpsgd"]}, tmp_path / "two")
    with pytest.raises(ValueError, match=r"two holds several runs: choose .* dpsgd/seed-0, dpsgd/seed-1$"):
        TrainedClassifier.load(tmp_path / "two")
    with pytest.raises(ValueError, match="unknown run 'dpsgd/seed-2': did you mean 'dpsgd/seed-"):
        TrainedClassifier.load(tmp_path / "two", "dpsgd/seed-2")
    save_file({"weight": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="does not describe its weights: give a folder that fedfair wrote"):
        TrainedClassifier.load(tmp_path)


def test_every_run_of_a_comparison_can_be_used(tmp_path: Path, result: Result) -> None:
    """Runs differ in method and seed, so also in the means by which rows are standardised; one has a threshold."""
    settings = {name: value for name, value in result.experiment.settings().items()
                if name not in ("seed", "strategy", "threshold", "theta")}
    results = compare(experiments(["sgd", "dpsgd-p"], [0, 1], None, {**settings, "dpsgd-p.threshold": "toc"}))
    save_comparison(results, {"strategies": ["sgd", "dpsgd-p"]}, tmp_path / "four")
    rows, answers = pd.read_csv(str(result.experiment.csv)), []
    for each in results:
        name, test = f"{each.experiment.strategy}/seed-{each.experiment.seed}", each.data.test
        loaded = TrainedClassifier.load(tmp_path / "four", name)
        answers.append(loaded.predict_proba(rows)[:, 1].tobytes())
        found = loaded.predict(rows.iloc[test.records.numpy()])  # the column sex says the group
        assert (loaded.threshold is not None) == (each.experiment.strategy == "dpsgd-p")
        assert accuracy_score(test.y, found) == pytest.approx(final(each, "accuracy", "all"))
    assert len(set(answers)) == 4


def test_pixels_are_scaled_as_they_were_for_training(tmp_path: Path) -> None:
    result = run(people(10, 5, 2).model_copy(update={"pixels": (0.2, 0.4)}))
    x = result.data.test.x
    expected = result.model((x.float() / 255 - 0.2) / 0.4).double().softmax(1).detach().numpy()
    result.save(tmp_path / "run")
    for classifier in (TrainedClassifier.of(result), TrainedClassifier.load(tmp_path / "run")):
        assert np.allclose(classifier.predict_proba(x.numpy()), expected, rtol=0, atol=1e-6)


def test_bytes_of_words_stay_whole_numbers() -> None:
    model = torch.nn.Sequential(torch.nn.Embedding(5, 2), torch.nn.Flatten())
    classifier = TrainedClassifier(model, ("a",), tuple("abcd"))
    assert classifier.predict(np.array([[1, 2]])).shape == (1,)


@pytest.mark.slow
def test_fairlearns_metrics_are_ours(result: Result) -> None:
    from fairlearn.metrics import (
        demographic_parity_difference,
        equal_opportunity_difference,
        equalized_odds_difference,
    )

    frame = metric_frame(result, {"accuracy": accuracy_score, "recall": recall_score})
    for group in ("f", "m"):
        assert frame.by_group.loc[group, "accuracy"] == pytest.approx(final(result, "accuracy", group))
        assert frame.by_group.loc[group, "recall"] == pytest.approx(final(result, "true_positive_rate", group))
    assert frame.difference()["accuracy"] == pytest.approx(final(result, "accuracy_parity", "all"))
    predictions = predictions_of_test(result)
    for metric, theirs in (("demographic_parity", demographic_parity_difference),
                           ("equalised_odds", equalized_odds_difference),
                           ("equal_opportunity", equal_opportunity_difference)):
        assert theirs(**predictions) == pytest.approx(final(result, metric, "all"))
