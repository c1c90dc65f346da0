"""How a trained model's decisions are corrected by group: the settings of reject-option classification."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from fedfair.plugins.registry import unknown

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Names = Annotated[tuple[str, ...], BeforeValidator(lambda value: _names(value)), Field(min_length=1)]


class ThresholdSettings(BaseModel):
    """Which threshold a run ends with (`threshold`), and what is known of it beforehand.

    "roc" rejects below `gamma`; without a gamma it looks for one as "toc" does: the first of 100 under which the
    demographic parity of the validation part is at most `theta`. "by-group" looks for a gamma for each group, so that
    the fewest decisions change. `deprived` names the deprived groups (by default those with a rate of favourable
    decisions below that of all validation records), `favourable` the favourable class, by its number or by the name
    that the label has for it (of two, class 1 unless it is set).

    `threshold_epsilon` makes the search private, at the run's delta, for the validation records. With
    `threshold_confidence` demographic parity is at most theta on unseen data with that confidence, not only on the
    validation part; a run says if no gamma can promise it.
    """

    threshold: Literal["none", "roc", "toc", "by-group"] = "none"
    theta: Share = 0.05
    gamma: Annotated[float, Field(ge=0.5, le=1)] | None = None
    deprived: Names | None = None
    favourable: Annotated[int | str, BeforeValidator(lambda value: _class(value))] | None = None
    threshold_epsilon: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    threshold_confidence: Annotated[float, Field(gt=0, lt=1)] | None = None

    @property
    def searches(self) -> bool:
        """Whether something is to be found out on validation records: a gamma, or which groups are deprived."""
        return self.threshold != "none" and (self.gamma is None or self.deprived is None)

    def favourable_class(self, labels: Sequence[str]) -> int | None:
        """The number of the favourable class, of those with the names `labels`; None if none is set.

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
        """Settings that the chosen threshold does not use are mistakes."""
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
    """One name, which may be a number, or several of them."""
    several = value if isinstance(value, list | tuple) else [value]
    return tuple(str(name) if isinstance(name, int) else name for name in several)


def _class(value: Any) -> Any:
    """The number or the name of a class; raises `ValueError` for what is neither."""
    if isinstance(value, str) or (isinstance(value, int) and value >= 0):
        return value
    raise ValueError(f"favourable is {value!r}: give the number of a class, 0, 1, ..., or the name that the label has "
                     "for it")
