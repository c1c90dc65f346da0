"""The list of planted mistakes fits the code: each text is there exactly once, and so are its tests."""

from __future__ import annotations

from collections import Counter

from tests.for_each import for_each
from tests.tools.mutants import MUTANTS, TREE, places, present


def test_there_are_forty_under_names_of_their_own() -> None:
    assert len(MUTANTS) == len({mutant.name for mutant in MUTANTS}) == 40
    assert min(Counter(mutant.package for mutant in MUTANTS).values()) >= 5


def test_each_is_in_one_place_and_changes_it() -> None:
    lost = {mutant.name: [str(path) for path in places(TREE, mutant.old)] for mutant in MUTANTS}
    assert {name: at for name, at in lost.items() if len(at) != 1} == {}
    assert [mutant.name for mutant in MUTANTS if mutant.old == mutant.new] == []


@for_each("package", sorted({mutant.package for mutant in MUTANTS}))
def test_each_has_tests_that_exist(package: str) -> None:
    own = [mutant for mutant in MUTANTS if mutant.package == package]
    assert [mutant.name for mutant in own if not all(present(TREE, [test]) for test in mutant.tests)] == []
