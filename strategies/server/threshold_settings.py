"""How a trained model's decisions are corrected by group: the settings of reject-option classification."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from fedfair.plugins.registry import unknown

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
        default=0.05,
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
        description="Favourable class, by number or by the label's name; of two classes by default class 1.")
    threshold_epsilon: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
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

        Raises `ValueError` if there is no such class.
        """
        if isinstance(self.favourable, str):
            if self.favourable not in labels:
                raise unknown("favourable class", self.favourable, labels)
            return labels.index(self.favourable)
        if self.favourable is not None and self.favourable >= len(labels):
            raise ValueError(f"favourable is {self.favourable}, but there are {len(labels)} classes: it must be one of "
                             f"0..{len(labels) - 1}, or a class's name")
        return self.favourable

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
    if isinstance(value, str) or (isinstance(value, int) and value >= 0):
        return value
    raise ValueError(f"favourable is {value!r}: give the number of a class, 0, 1, ..., or the name that the label has "
                     "for it")
