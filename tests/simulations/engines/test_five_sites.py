"""Five sites with five different files, of adult, and a server without any."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tomli_w
import torch

from fedfair.accounting import Ledger, Release, epsilon
from fedfair.datasets.published.tables import ADULT
from fedfair.moments.logistic import AUTO_STEPS
from simulations.commands.node import init
from simulations.engines.engines import Local
from simulations.engines.run import run
from simulations.fitting.fit_folder import Story
from simulations.settings.experiment import Experiment
from tests.guard import wait_until
from tests.ports import free_ports
from tests.simulations.engines.runtime import kill_superlink, superlink, supernode
from tests.simulations.engines.test_own_files import in_one_place
from tests.test_documents import ROOT, blocks

SITES, BRANCHED = 5, 2  # nodes, and the number of one whose file holds two sites
DELTA = 1e-6
_COLUMNS = ("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship",
            "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income")
_USED = ("age", "education", "occupation", "hours-per-week", "race", "sex")


@pytest.fixture
def files(data_dir: Path, tmp_path: Path) -> tuple[str, ...]:
    """Deal records of adult to five sites that differ in size, schooling and race, each with a folder of its own.

    Every site has a copy of the schema, and so has the person who starts runs. One file tells its branches apart.
    """
    frame = pd.read_csv(data_dir / "adult.data", names=list(_COLUMNS), skipinitialspace=True, na_values="?").dropna()
    frame = frame.assign(race=frame["race"].where(frame["race"] == "White", "Non-White"))[:10_000]
    draws = np.random.default_rng(0)
    strata = frame.groupby(["education", "race"]).ngroup()
    mixtures = draws.dirichlet(np.arange(1, SITES + 1), strata.max() + 1)
    site = np.array([draws.choice(SITES, p=mixtures[stratum]) for stratum in strata])
    (tmp_path / "study.toml").write_text(schema())
    for number in range(SITES):
        folder, own = tmp_path / f"site{number}", frame[site == number]
        if number == BRANCHED:
            own = own.assign(branch=draws.choice(["of Zaphod", "of Trillian"], len(own)))
        folder.mkdir()
        (folder / "study.toml").write_text(schema())
        own[[*own.columns[number:], *own.columns[:number]]].to_csv(folder / "people.csv", index=False)
    return tuple(str(tmp_path / f"site{number}" / "people.csv") for number in range(SITES))


def schema() -> str:
    """Return what is published of adult's columns, of those that are used."""
    listed = {entry.column: list(entry.categories) for entry in ADULT.public.categories if entry.column in _USED}
    return tomli_w.dumps({
        "source": ADULT.public.source, "label": "income", "group": "sex",
        "ranges": {known.column: [known.low, known.high] for known in ADULT.public.ranges if known.column in _USED},
        "categories": {**listed, "income": ["<=50K", ">50K"]}})


METHODS: dict[str, dict[str, Any]] = {
    "moments": {"model": "linear", "batch_size": 100},
    "dpsgd-f": {"model": "logistic", "batch_size": 500, "steps": 2, "sync": "step"}}


@pytest.mark.parametrize("strategy", METHODS)
def test_without_noise_five_files_are_one(strategy: str, files: tuple[str, ...]) -> None:
    schema_file = str(Path(files[0]).parents[1] / "study.toml")
    made = Experiment(partition="nodes", schema_file=schema_file, features="binned", strategy=strategy,
                      noise_multiplier=0.0, dtype="float64", **METHODS[strategy])
    apart, together = run(made, Local(files=files)), in_one_place(made, files)
    for (name, one), (_, other) in zip(apart.model.named_parameters(), together.model.named_parameters(), strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-10), name


class Study:
    """A SuperLink with TLS in an empty folder, and SuperNodes with keys and policies, in folders of their own."""

    def __init__(self, environment: dict[str, str], folder: Path) -> None:
        self.environment, self.folder, self.server = environment, folder, folder / "server"
        self.link, *self.ports = free_ports(2 * SITES + 1)
        self.server.mkdir()
        self.keys = made_keys(folder)
        self.processes = [self._superlink()]
        for number in range(SITES):
            self.flwr("supernode", "register", str(self.keys / f"site{number}.pub"), "own")

    def _superlink(self) -> subprocess.Popen[str]:
        """Start the SuperLink, with a database."""
        return superlink(self.link, self.environment, self.server, self.keys, self.folder / "link.db")

    def restart_link(self) -> None:
        """Kill the SuperLink, and start it again."""
        kill_superlink(self.processes[0], self.link)
        self.processes[0] = self._superlink()

    def wait_for(self, online: int) -> None:
        """Wait until that many SuperNodes are online; a SuperLink notices after a minute that one is gone."""
        wait_until(lambda: self.flwr("supernode", "list", "own").count("online") == online, self.processes[0])

    def flwr(self, *words: str) -> str:
        """Return what a command of Flower's says."""
        done = subprocess.run(["flwr", *words], env=self.environment, cwd=self.folder, capture_output=True, text=True,
                              check=False)
        return done.stdout + done.stderr

    def start(self, number: int) -> subprocess.Popen[str]:
        """Start a site's SuperNode."""
        made = supernode(number, self.link, self.ports.pop(), self.environment, self.folder / f"node{number}.log",
                         SITES, self.folder / f"site{number}", "policy='fedfair-node.toml'", self.keys)
        self.processes.append(made)
        return made

    def run(self, **settings: Any) -> str:
        """Run something, and return what is printed."""
        config = " ".join(f"{name.replace('_', '-')}={json.dumps(value)}" for name, value in settings.items())
        return self.flwr("run", str(ROOT), "own", "--stream", "--run-config", config)

    def end(self) -> None:
        """End all processes."""
        for process in reversed(self.processes):
            process.terminate()
            process.wait()


def made_keys(folder: Path) -> Path:
    """Make certificates and keys for all sites, as the tutorial does."""
    page = ROOT / "docs" / "tutorials" / "real-nodes.md"
    (text,) = [block.text for block in blocks(page) if "x509" in block.text]
    names = [f"site{number}" for number in range(SITES)]
    before = Path.cwd()
    os.chdir(folder)
    try:
        exec(text.replace('("site0", "site1", "site2", "stranger")', repr(names)), {})  # noqa: S102 - our own document
    finally:
        os.chdir(before)
    return folder / "keys"


def released(file: str) -> list[dict[str, Any]]:
    """Return the entries of a node's own ledger."""
    lines = Path(file).with_name("fedfair-node-ledger.jsonl").read_text().splitlines()
    return [entry for entry in map(json.loads, lines) if "rate" in entry]


def spent(entries: Sequence[dict[str, Any]]) -> float:
    """Return the epsilon of entries, composed as a run's ledger composes them."""
    releases: Counter[Release] = Counter()
    for entry in entries:
        releases[Release(entry["rate"], entry["multiplier"])] += entry["steps"]
    return epsilon(releases, DELTA, "pld")


def of_the_fit(file: str, ledger: Ledger, sites: int) -> None:
    """Hold a node's own ledger against that of the fit: the same moments and gradients, and the same counts.

    Each of a node's sites adds all of the noise, and what leaves the node is their sum.
    """
    entries = [{**entry, "multiplier": entry["multiplier"] / sites**0.5} for entry in released(file)]
    trained = [entry for entry in entries
               if entry["exchange"] in ("moment_sums.send_moments", "exchanges.send_gradient_sum")]
    counts = [entry for entry in entries if entry["exchange"].startswith("private_counts.")]
    assert len(trained) == 1 + AUTO_STEPS
    assert len(counts) == len(entries) - len(trained) == 3
    assert spent(trained) == pytest.approx(ledger.by_observer()["server"], rel=1e-3)
    loss = sum(entry["multiplier"] ** -2 for entry in counts)
    assert loss == pytest.approx(sum(release.multiplier ** -2 for release in ledger.held_out.values()), rel=1e-6)
    assert spent(counts[:1]) == pytest.approx(ledger.held_out_epsilon("valid"), rel=1e-3)


@pytest.fixture
def policies(files: tuple[str, ...]) -> None:
    """Write a policy for every site, as its owner does."""
    for number, file in enumerate(files):
        site = Path(file).parent
        init(Path(file), schema=site / "study.toml", epsilon=8.0, delta=1e-5, noise=0.8, name="people",
             site="branch" if number == BRANCHED else "", set_=["features=binned"], out=site / "fedfair-node.toml")


@pytest.fixture
def study(deployment: dict[str, str], tmp_path: Path, policies: None) -> Iterator[Study]:
    """Start a SuperLink; at the end, end all that was started."""
    made = Study(deployment, tmp_path)
    yield made
    made.end()


@pytest.mark.slow
def test_a_superlink_and_a_node_are_killed_and_brought_back_and_five_sites_fit(
        study: Study, tmp_path: Path, files: tuple[str, ...]) -> None:
    """The SuperLink knows from its database who is there. A file that is not like the schema ends the first fit. In the
    second, the nodes' ledgers agree with the server's.
    """
    good = Path(files[4]).read_text()
    Path(files[4]).write_text(good.replace("Bachelors", "Laurea"))
    nodes = [study.start(number) for number in range(SITES)]
    study.wait_for(online=SITES)
    os.killpg(nodes[1].pid, signal.SIGKILL)
    study.restart_link()
    study.wait_for(online=SITES - 1)  # before that, the key of the killed one is refused
    study.start(1)
    study.wait_for(online=SITES)

    asked: dict[str, Any] = {"fit": True, "schema": str(tmp_path / "study.toml"), "epsilon": 1.0, "delta": DELTA,
                             "out": str(tmp_path / "fitted")}
    said = study.run(**asked)
    assert "education has values that the schema does not list" in said, said[-3000:]
    assert "Laurea" not in said
    assert not any(Path(file).with_name("fedfair-node-ledger.jsonl").exists() for file in files)

    Path(files[4]).write_text(good)
    said = study.run(**asked)
    assert f"Results are in {tmp_path / 'fitted'}" in said, said[-3000:]
    story = Story.read(tmp_path / "fitted")
    assert (story.nodes, story.ledger.guarantee, story.epsilon <= 1) == (SITES, "proved", True)
    assert story.figure("accuracy").low > 0.7
    sites = story.by_node["sites"].tolist()
    assert sites == [2 if number == BRANCHED else 1 for number in range(SITES)]
    assert not any(b"Zaphod" in path.read_bytes() for path in (tmp_path / "fitted").iterdir())
    for file, held in zip(files, sites, strict=True):
        of_the_fit(file, story.ledger, held)
    assert [path.name for path in study.server.iterdir()] == ["link.log"]
