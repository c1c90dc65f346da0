"""How the model of a fit came about, in words: how it was trained, and what it was selected among."""

from __future__ import annotations

from fedfair.accounting import Release, epsilon
from fedfair.accounting.figures import up
from fedfair.moments.front import LOGISTIC, TRAINED
from simulations.fitting.candidates import METHODS
from simulations.fitting.story import Story


def in_words(method: str) -> str:
    """Return a method's name, with the settings that are tried.

    Args:
        method: Name of the method.
    """
    tried: dict[str, dict[str, None]] = {}
    for settings in METHODS[method]:
        for name, value in settings.items():
            if name != "options":
                tried.setdefault(name.replace("_", " "), {})[f"{value:g}"] = None
    told = ", ".join(f"{name} {' or '.join(values)}" for name, values in tried.items())
    return f"{method} ({told})" if told else method


def was_selected(story: Story) -> bool:
    """Return whether the model is the best of several trials.

    Args:
        story: The fit.
    """
    return "candidates" in story.asked


def how_trained(story: Story) -> str:
    """Say how the model was trained, as the end of a sentence on it.

    Args:
        story: The fit.
    """
    head = next(row for row in story.front["head"])
    config = story.config
    if head == TRAINED:
        return (f"trained by {config['strategy']}, {config['steps']} steps at learning rate "
                f"{config['learning_rate']:g} with all records in each and noise on every sum of clipped gradients")
    how = (f"logistic regression, from noisy second moments by {gradients(story)} steps along noisy gradients"
           if head == LOGISTIC else "fitted to noisy second moments by least squares")
    return f"{how}, tau = {story.tau(story.chosen):g}"


def gradients(story: Story) -> int:
    """Return how many gradients were released after the moments.

    Args:
        story: The fit.
    """
    trained = next(iter(story.front["head"])) == LOGISTIC
    return sum(story.ledger.events.values()) - 1 if trained else 0


def how_selected(story: Story) -> str:
    """Say what the model was selected among, and at what cost; "" if it was not.

    Args:
        story: The fit.
    """
    if not was_selected(story):
        return ""
    ledger = story.ledger
    trial = epsilon({Release(1.0, ledger.selections["train"].multiplier): 1}, ledger.delta, ledger.accountant)
    return (f"The model is the best of a random number of trials, {story.asked['trials']:g} expected (geometric "
            "distribution), by a noisy count of right decisions on validation records. Each trial trained a method "
            f"that was drawn at random, with settings drawn at random: {'; '.join(story.asked['candidates'])}. "
            "How many there were, and anything of the others, was not released. The epsilon pays for the choice too: a "
            f"single trial has epsilon {up(trial, '.3g')}.")
