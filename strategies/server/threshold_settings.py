"""How a trained model's decisions are corrected by group: the settings of reject-option classification."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from fedfair.plugins.registry import unknown
from fedfair.protocol.fields import Positive

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Names = Annotated[tuple[str, ...], BeforeValidator(lambda value: _names(value)), Field(min_length=1)]


class ThresholdSettings(BaseModel):
    """Which threshold a run ends with, and what is known of it beforehand.

    Every field describes itself; docs/settings.md and `fedfair settings` list them.
    """

    threshold: Literal["none", "roc", "toc", "by-group"] = Field(
        default="none",
        description="How decisions are corrected after the training: by reject option below one gamma (roc), which toc "
                    "always looks for; below a gamma for each group, with the fewest changed decisions (by-group); or "
                    "not at all (none).")
    theta: Share = Field(
        default=0.05, json_schema_extra={"same_releases": True},
        description="Largest demographic parity of the validation part that the search for a threshold accepts.")
    gamma: Annotated[float, Field(ge=0.5, le=1)] | None = Field(
        default=None,
        description="Confidence below which threshold roc changes decisions; by default the first of 100 values that "
                    "keeps demographic parity within theta.")
    deprived: Names | None = Field(
        default=None,
        description="Names of the deprived groups, with threshold roc or toc; by default those with a rate of "
                    "favourable decisions below that of all validation records.")
    favourable: Annotated[int | str, BeforeValidator(lambda value: _class(value))] | None = Field(
        default=None,
        description="Favourable class, by the label's name, or by number where no label is a number; of two classes "
                    "by default the second, class 1.")
    threshold_epsilon: Positive | None = Field(
        default=None,
        description="Epsilon, at the run's delta, that the search for a threshold costs the validation records; by "
                    "default it is not private.")
    threshold_confidence: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None,
        description="Confidence that demographic parity is within theta on unseen data too; a run says if no gamma "
                    "can promise it.")

    @property
    def searches(self) -> bool:
        """Whether validation records decide something: a gamma, or which groups are deprived."""
        return self.threshold != "none" and (self.gamma is None or self.deprived is None)

    def favourable_class(self, labels: Sequence[str]) -> int | None:
        """Return the number of the favourable class among the classes named `labels`; None if none is set.

        A number that is a label's name is that label: of the labels 1 and 2, 1 is the first. Raises `ValueError` if
        there is no such class, or only a class of that number beside labels that are numbers themselves.
        """
        value = self.favourable
        if value is None:
            return None
        named = [number for number, label in enumerate(labels) if _same(label, value)]
        if len(named) == 1:
            return named[0]
        if isinstance(value, str):
            raise unknown("favourable class", value, labels)
        if tuple(labels) != tuple(map(str, range(len(labels)))) and any(_number(label) is not None for label in labels):
            raise ValueError(f"favourable is {value}, but the labels are {', '.join(map(repr, labels[:10]))}: give one "
                             f"of them, for example favourable={labels[-1]}")
        if value < 0:
            raise ValueError(_NO_CLASS.format(value))
        if value >= len(labels):
            raise ValueError(f"favourable is {value}, but there are {len(labels)} classes: it must be one of "
                             f"0..{len(labels) - 1}, or a class's name")
        return value

    @model_validator(mode="after")
    def _nothing_in_vain(self) -> ThresholdSettings:
        """Refuse settings that the chosen threshold does not use."""
        unused = {
            "gamma": (self.threshold != "roc", "is only used with threshold = \"roc\""),
            "deprived": (self.threshold in ("none", "by-group"), "is only used with threshold = \"roc\" or \"toc\""),
            "threshold_epsilon": (not self.searches, "is only used where a threshold is looked for"),
            "threshold_confidence": (self.threshold == "none" or self.gamma is not None,
                                     "is only used where a gamma is looked for"),
        }
        for name, (useless, why) in unused.items():
            if useless and getattr(self, name) is not None:
                raise ValueError(f"{name} is {getattr(self, name)!r}, but threshold is {self.threshold!r}: it {why}; "
                                 "leave it out, or change the threshold")
        return self


def _names(value: Any) -> Any:
    """Return a tuple of names from one name, which may be a number, or from several."""
    several = value if isinstance(value, list | tuple) else [value]
    return tuple(str(name) if isinstance(name, int) else name for name in several)


def _class(value: Any) -> Any:
    """Return the number or the name of a class; raise `ValueError` for anything else."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, str | int):
        return value
    raise ValueError(_NO_CLASS.format(repr(value)))


_NO_CLASS = "favourable is {}: give the number of a class, 0, 1, ..., or the name that the label has for it"


def _same(label: str, value: int | str) -> bool:
    """Return whether a label is called `value`, or is the same number, 1.0 for 1, or the same truth, true for True."""
    if label == str(value):
        return True
    if isinstance(value, str) and value in ("True", "False"):
        return label.lower() == value.lower()
    return isinstance(value, int) and _number(label) == value


def _number(label: str) -> float | None:
    """Return a label as a number, None if it is none."""
    try:
        return float(label)
    except ValueError:
        return None
