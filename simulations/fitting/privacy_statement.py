"""What a fit promises, in plain words, under the headings of NIST SP 800-226 (2025).

How the model of a fit came about, in words: how it was trained, and what it was selected among.
"""

from __future__ import annotations

from typing import NamedTuple

from fedfair.accounting import Release, epsilon
from fedfair.accounting.events import LEFT_OUT
from fedfair.accounting.figures import up
from fedfair.accounting.ledger_words import left_to_trust
from fedfair.moments.front import LOGISTIC, TRAINED
from simulations.fitting.fit_folder import Story
from simulations.fitting.private_selection import METHODS


def in_words(method: str) -> str:
    """Return a method's name, with the settings that are tried."""
    tried: dict[str, dict[str, None]] = {}
    for settings in METHODS[method]:
        for name, value in settings.items():
            if name != "options":
                tried.setdefault(name.replace("_", " "), {})[f"{value:g}"] = None
    told = ", ".join(f"{name} {' or '.join(values)}" for name, values in tried.items())
    return f"{method} ({told})" if told else method


def was_selected(story: Story) -> bool:
    """Return whether the model is the best of several trials."""
    return "candidates" in story.asked


def how_trained(story: Story) -> str:
    """Say how the model was trained, as the end of a sentence on it."""
    head = next(row for row in story.front["head"])
    config = story.config
    if head == TRAINED:
        return (f"trained by {config['strategy']}, {config['steps']} steps at learning rate "
                f"{config['learning_rate']:g} with all records in each and noise on every sum of clipped gradients")
    how = (f"logistic regression, from noisy second moments by {gradients(story)} steps along noisy gradients"
           if head == LOGISTIC else "fitted to noisy second moments by least squares")
    return f"{how}, tau = {story.tau(story.chosen):g}"


def gradients(story: Story) -> int:
    """Return how many gradients were released after the moments."""
    trained = next(iter(story.front["head"])) == LOGISTIC
    return sum(story.ledger.events.values()) - 1 if trained else 0


def how_selected(story: Story) -> str:
    """Say what the model was selected among, and at what cost; "" if it was not."""
    if not was_selected(story):
        return ""
    ledger = story.ledger
    trial = epsilon({Release(1.0, ledger.selections["train"].multiplier): 1}, ledger.delta, ledger.accountant)
    return (f"The model is the best of a random number of trials, {story.asked['trials']:g} expected (geometric "
            "distribution), by a noisy count of right decisions on validation records. Each trial trained a method "
            f"that was drawn at random, with settings drawn at random: {'; '.join(story.asked['candidates'])}. "
            "How many there were, and anything of the others, was not released. The epsilon pays for the choice too: a "
            f"single trial has epsilon {up(trial, '.3g')}.")


class Part(NamedTuple):
    """One part of the promise: its heading, and what it says."""

    heading: str
    text: str


def promise(story: Story) -> list[Part]:
    """Return the parts of a fit's promise."""
    ledger, epsilon = story.ledger, up(story.epsilon, ".4g")
    return [
        Part("Guarantee", f"Differential privacy with epsilon {epsilon} at delta {up(ledger.delta, '.3g')}: "
             f"{ledger.guarantee}. Whatever else they know, a reader of this folder learns almost nothing about one "
             "record: the odds that it was in the table change by at most e to the epsilon, except with probability "
             "delta."),
        Part("Unit of privacy", f"One row of {'one of the tables' if story.nodes else 'the table'}. Somebody with "
             "several rows has less protection: k rows have k times the epsilon."),
        Part("Who held the records", f"{story.held_by[:1].upper()}{story.held_by[1:]}."),
        Part("Neighbouring tables", "They have the same number of rows, and differ in one: in one of them it is empty. "
             f"Each row is read{', and dealt to a part,' if story.part == 'test' else ''} by itself."),
        Part("Threat model", "Anyone who gets the whole folder: model, front, figures, page and card. "
             + (_of_nodes(story) if story.nodes else "The machine that ran the fit saw the table and is trusted.")),
        Part("What was released", _releases(story)),
        Part("What is public by assumption", _public(story)),
        Part("What is not covered", "Direct access to the table; attacks on the machines; time and memory that a run "
             "takes; facts that any correct model reveals about everyone, in the table or not, such as that older "
             "people earn more."),
        Part("Randomness", "Noise comes from the operating system, and is drawn exactly on a grid."
             if story.config["randomness"] == "system" and story.config["noise"] == "discrete" else
             f"Randomness is {story.config['randomness']}, noise {story.config['noise']}: see the ledger."),
    ]


def _of_nodes(story: Story) -> str:
    """Say what the server and other nodes of a fit saw, and what is left to trust."""
    ledger = story.ledger
    seen = ("of moments and gradients only the sum over all nodes, with the shares of noise of all of them, and counts "
            "of single nodes, each with all of its noise" if ledger.secure_aggregation else
            "sums and counts of single nodes, each with all of its noise")
    against, (*left, _) = ledger.by_observer(), left_to_trust(ledger)  # the last is about what is public: see below
    return (f"And the server, which saw {seen}: epsilon {up(against['server'], '.4g')} for a training record. And "
            f"another node, which knows the noise that it added itself: epsilon {up(against['client'], '.4g')}. What "
            f"is left to trust: {'; '.join(left)}.")


def _public(story: Story) -> str:
    """Say what everybody may know."""
    if story.nodes:
        known = story.ledger.public
        return f"{known[:1].upper()}{known[1:]}. Say nothing there that must stay secret."
    groups, labels = ", ".join(story.groups), ", ".join(story.description.labels)
    sites = f", the sites ({story.config['site']}) with their names" if story.config.get("site") else ""
    return (f"The format of the file, the names of its columns, the number of rows, the groups "
            f"({groups}; no value is a group too){sites} and the classes ({labels}), as they are spelled. Say nothing "
            "here that must stay secret.")


def _releases(story: Story) -> str:
    """Say what was released, and of which part."""
    ledger = story.ledger
    learned = ("noisy counts that tell numbers from categories, find the decimal mark and say how rare a class is, "
               "noisy histograms of the columns, and " if ledger.preprocessing else "")
    moments = "noisy second moments" + (f" and {gradients(story)} noisy gradients" if gradients(story) else "")
    trained = ("the best of a random number of trainings (neither their number nor the others), whose choice is "
               "part of the cost" if was_selected(story) else
               f"{moments}, from which the model and its whole front follow")
    others = "Every training and all else" if was_selected(story) else "All"
    if story.part == LEFT_OUT:
        return (f"Of all records, which all train: {learned}{trained}, and noisy counts behind the choice and the "
                "figures, of decisions on each record by a model without it: epsilon "
                f"{up(ledger.epsilon(), '.4g')} together. All are Gaussian releases without sampling, composed "
                "exactly.")
    return (f"Of the training part: {learned}{trained}: epsilon {up(ledger.epsilon(), '.4g')}. Of the validation "
            f"part: noisy counts by which the model was chosen, epsilon "
            f"{up(ledger.held_out_epsilon('valid'), '.4g')}. Of the test part: noisy counts behind "
            f"the figures, epsilon {up(ledger.held_out_epsilon('test'), '.4g')}. A row is in one part, so these do not "
            f"add up. {others} are Gaussian releases without sampling, composed exactly.")
