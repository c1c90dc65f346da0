"""Names that are known, and the nearest ones for those that are not."""

from __future__ import annotations

import pytest

from fedfair.datasets import DATASETS
from fedfair.mechanisms.clipping import CLIP_RULES, Flat
from fedfair.mechanisms.counting import COUNT_QUERIES
from fedfair.models.published import MODELS
from fedfair.plugins.registry import Registry, unknown


def registry() -> Registry[int]:
    made: Registry[int] = Registry("thing")
    for number, name in enumerate(("zebra", "apple", "apples")):
        assert made.register(name)(number) == number
    return made


def test_values_are_found_by_name_and_listed_in_order() -> None:
    made = registry()
    assert made["apple"] == 1
    assert list(made) == ["apple", "apples", "zebra"]
    assert "zebra" in made
    assert "zebr" not in made


def test_a_value_that_is_made_later_is_listed_at_once_and_made_once() -> None:
    made, calls = registry(), iter([7])
    made.register_later("mule", lambda: next(calls))
    made.register_later("apple", lambda: next(calls))
    assert list(made) == ["apple", "apples", "mule", "zebra"]
    assert [made["mule"], made["mule"], made["apple"]] == [7, 7, 1]
    with pytest.raises(ValueError, match="did you mean 'mule'"):
        made["mul"]


@pytest.mark.parametrize(("name", "message"), [
    ("zebr", "unknown thing 'zebr': did you mean 'zebra'? known are apple, apples, zebra"),
    ("appl", "unknown thing 'appl': did you mean 'apple' or 'apples'? known are apple, apples, zebra"),
    ("xyz", "unknown thing 'xyz': known are apple, apples, zebra"),
    ("", "unknown thing '': known are apple, apples, zebra")])
def test_an_unknown_name_is_answered_with_the_nearest(name: str, message: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011
        registry()[name]
    assert str(error.value) == message


def test_the_nearest_is_found_among_any_names() -> None:
    assert "did you mean 'learning_rate'?" in str(unknown("setting", "learning_rat", {"learning_rate": 1, "seed": 2}))


def test_of_many_names_the_nearest_are_listed_or_what_shows_all() -> None:
    many = [f"name-{number}" for number in range(40)]
    assert str(unknown("thing", "x", many)) == ("unknown thing 'x': known are name-4, name-5, name-6, name-7, "
                                                "name-8, name-9 and 34 others")
    assert "did you mean 'name-7'" in str(unknown("thing", "nme-7", many))
    assert str(unknown("thing", "x", many, "`seq`")) == "unknown thing 'x': `seq` lists them all"


@pytest.mark.parametrize(("known", "wrong", "near"), [
    (DATASETS, "adlt", "adult"), (MODELS, "mpl", "mlp"), (CLIP_RULES, "per_group", "per-group"),
    (COUNT_QUERIES, "abov", "above")])
def test_every_registry_helps(known: Registry[object], wrong: str, near: str) -> None:
    with pytest.raises(ValueError, match=f"unknown {known.kind} '{wrong}': did you mean '{near}'"):
        known[wrong]


def test_an_instance_knows_the_name_of_its_class() -> None:
    assert CLIP_RULES.name_of(Flat(1.0)) == "flat"
    with pytest.raises(ValueError, match="int is not a registered clip rule"):
        CLIP_RULES.name_of(3)


def test_a_subclass_does_not_pass_for_its_parent() -> None:
    """It may clip otherwise, and would travel as something that it is not."""
    class Other(Flat):
        pass

    with pytest.raises(ValueError, match="Other is not a registered clip rule"):
        CLIP_RULES.name_of(Other(1.0))
