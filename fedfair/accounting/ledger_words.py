"""An account in words: what its figures are worth and why, what protects held-out records, whom they leave to trust.

Tables of epsilons, and others, as HTML for notebooks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from fedfair.accounting import contents
from fedfair.accounting.account import Account
from fedfair.accounting.events import LEFT_OUT
from fedfair.accounting.figures import up
from fedfair.mechanisms.noise import Trust

if TYPE_CHECKING:
    import pandas as pd

_PARTS = {"valid": "validation data", "test": "test data",
          LEFT_OUT: "figures of training data, each record decided by a model without it"}
_USES = {"valid": "what was chosen on it", "test": "the figures", LEFT_OUT: "them"}
_UNUSED = "not used, but for metrics"


def reason(account: Account) -> str:
    """Say why the guarantee is of its kind: every reason, where there are several."""
    if account.guarantee == "none":
        return "a release carried no noise in proportion to what one record can add"
    doubts = "; ".join(filter(None, (account.nominal, account.simulated)))
    if account.guarantee == "simulated":
        return f"{doubts}; with secret randomness it would be proved"
    chosen = ("; one is the best of a random number of trials, and is charged for the choice (see "
              "`fedfair.accounting.selection`)" if account.selections else "")
    return doubts or (f"every release is {_releases(account)} with noise in proportion to what one "
                      f"{account.protects} can add{chosen}; composed by {account.accountant}; "
                      f"neighbours differ by one {account.protects}")


def _releases(account: Account) -> str:
    """Say what the releases are, by the rates at which their events sampled."""
    in_bins = {event.bins is not None for event in account.log.counted()}
    if True in in_bins:
        return ("a Gaussian of balls in bins (each record in one random batch of every epoch)"
                f"{' or of a Poisson sample' * (False in in_bins)},")
    whole = {rate == 1 for event in account.log.counted() for rate in event.rates}
    if whole == {True}:
        return f"a Gaussian of all {account.protects}s, without sampling,"
    return f"a Gaussian, Poisson-sampled or of all {account.protects}s," if len(whole) == 2 else (
        "a Poisson-sampled Gaussian")


def held_out_data(account: Account, part: str) -> str:
    """Say what was released of a held-out part, and at what cost.

    Args:
        account: What was released.
        part: "valid", "test" or `LEFT_OUT`.
    """
    named = _PARTS[part]
    if part not in {**account.held_out, **account.selections}:
        return f"{named}: {'none, since all records train' if LEFT_OUT in account.held_out else _UNUSED}"
    epsilon = account.held_out_epsilon(part)
    if math.isinf(epsilon):
        return f"{named}: not protected"
    within = account.protects == "participant" or part == LEFT_OUT
    apart = "part of the figures above" if within else "apart from that of training data"
    return (f"{named}: epsilon {up(epsilon, '.3g')} at delta {up(account.delta, '.6g')} for each "
            f"{account.protects}, against anyone who gets {_USES[part]}, {apart}")


def parts_data(account: Account) -> list[str]:
    """Say the same of every part that there is.

    Args:
        account: What was released.
    """
    if LEFT_OUT in account.held_out:
        return [held_out_data(account, LEFT_OUT)]
    return [held_out_data(account, part) for part in ("valid", "test") if part == "valid" or part in account.held_out]


def preprocessing_data(account: Account) -> str:
    """Say what preprocessing learned from a noisy release, and at what cost; "" if it learned nothing so."""
    learned = account.preprocessing
    if learned is None:
        return ""
    listed = (f"; with a probability of {up(learned.delta, '.3g')}, which is part of delta, a category of one record "
              "alone is listed" if learned.delta else "")
    return (f"preprocessing: ranges and categories come from a noisy release, which alone has epsilon "
            f"{up(account.preprocessing_epsilon(), '.3g')}; it is part of the figures above{listed}")


def delta_warning(account: Account, delta: float | None = None) -> str:
    """Say that delta is so large that a guarantee means little: above one over the number of records; or "".

    Args:
        account: What was released.
        delta: Delta of the figures, strictly between 0 and 1; None for the account's.
    """
    at = account.delta if delta is None else delta
    if account.guarantee == "none" or not account.size or at * account.size <= 1:
        return ""
    return (f"delta {up(at, '.3g')} is above 1/{account.size:,}, one over the number of training {account.protects}s: "
            f"it would permit publishing a whole {account.protects}, so choose a smaller one")


def reading(account: Account) -> str:
    """Say what the figures of `epsilon_by_group` are."""
    adaptive = any(event.spent_multipliers != event.multipliers for event in account.events)
    return "an odometer reading: the bounds depended on earlier outputs" if adaptive else "guaranteed in advance"


def objections(account: Account) -> dict[str, list[str]]:
    """Return why the files cannot be published, by whose privacy that would harm (see `contents.objections`)."""
    doubt = f"the guarantee of the releases is {account.guarantee}: {reason(account)}"
    return contents.objections(account.files, account.protects, None if account.guarantee == "proved" else doubt)


def left_to_trust(account: Account) -> list[str]:
    """Say what has to be trusted for the figures to hold: who could still learn of a record, and by what."""
    seed = [] if account.simulated is None else ["that nobody else has the seed, from which batches and noise follow"]
    program = ("that nodes run this program: with Flower, whoever may start runs sends it to them, and another program "
               "keeps to no policy")
    apart = bool(account.events) and all(event.client is not None for event in account.events)  # local epochs
    trust = Trust.LOCAL if apart else account.trust
    return [_of_noise(trust, account.clients, account.secure_aggregation), *seed, program,
            f"that these are public, or may be: {account.public}"]


def html(account: Account) -> str:
    """Show epsilon by group and observer, for notebooks."""
    title = f"epsilon at delta {up(account.delta, '.6g')}, for one {account.protects}, by {account.accountant}"
    by_group = {"guaranteed": account.guaranteed_by_group(), "guaranteed, by RDP": account.guaranteed_by_group(
        accountant="rdp"), "spent": account.epsilon_by_group(), "odometer": account.odometer_by_group()}
    spent = account.by_observer_and_group()
    by_observer = {"guaranteed to all": account.by_observer(), **{
        f"spent by {name}": {observer: of[name] for observer, of in spent.items()} for name in account.groups}}
    notes = filter(None, [
        f"guarantee: {account.guarantee}, because {reason(account)}", *parts_data(account), delta_warning(account),
        *(f"not protected: {name} ({why})" for name, why in account.unprotected.items())])
    return as_html(title, [epsilons("group", by_group), epsilons("against", by_observer)], list(notes))


def shown(epsilon: float) -> str:
    """Write an epsilon rounded up, or "none" where nothing is promised."""
    return up(epsilon, ".3f") if math.isfinite(epsilon) else "none"


def epsilons(first: str, columns: Mapping[str, Mapping[Any, float]]) -> pd.DataFrame:
    """Lay out epsilons, as text.

    Args:
        first: Heading of the names.
        columns: Epsilons by heading, then by name (a text); each has the same names.
    """
    import pandas as pd  # here, as a ledger is often imported and seldom shown

    written = {heading: {name: shown(value) for name, value in by_name.items()} for heading, by_name in columns.items()}
    return pd.DataFrame(written).rename_axis(first).reset_index()


def as_html(title: str, tables: Sequence[pd.DataFrame], notes: Sequence[str]) -> str:
    """Return HTML in which no name from the data can become markup.

    Args:
        title: What the tables show.
        tables: Their cells are shown as they are.
        notes: Sentences below them.
    """
    drawn = [table.to_html(index=False, border=0) for table in tables]
    said = [f"<p>{escape(note)}</p>" for note in notes]
    return "\n".join([f"<p><b>{escape(title)}</b></p>", *drawn, *said])

def _of_noise(trust: Trust, clients: int, secure_aggregation: bool) -> str:
    """Say whom the noise is left to."""
    if trust is Trust.CENTRAL:
        return "the server, which sees sums before it adds the noise"
    if trust is Trust.LOCAL:
        return "of the noise, nothing to others: every client adds all of it, before anything leaves"
    seen = "" if secure_aggregation else ", and the server, which sees the sums of single clients with a share each"
    return f"that at least {clients} clients add their shares of the noise, and do not act together{seen}"
