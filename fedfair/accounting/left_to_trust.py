"""What a run's guarantee leaves to trust, in sentences: who could still learn of a record, and by what."""

from __future__ import annotations

from fedfair.mechanisms.noise import Trust


def left_to_trust(trust: Trust, clients: int, secure_aggregation: bool, public: str, simulated: bool) -> list[str]:
    """Return what has to be trusted for the figures of a ledger to hold.

    Args:
        trust: Who adds the noise.
        clients: Number of clients that share it.
        secure_aggregation: Whether the server sees only sums over clients.
        public: What everybody is assumed to know.
        simulated: Whether the noise comes from a seed.
    """
    seed = ["that nobody else has the seed, from which batches and noise follow"] if simulated else []
    program = ("that nodes run this program: with Flower, whoever may start runs sends it to them, and another program "
               "keeps to no policy")
    return [_of_noise(trust, clients, secure_aggregation), *seed, program,
            f"that these are public, or may be: {public}"]


def _of_noise(trust: Trust, clients: int, secure_aggregation: bool) -> str:
    """Say whom the noise is left to."""
    if trust is Trust.CENTRAL:
        return "the server, which sees sums before it adds the noise"
    if trust is Trust.LOCAL:
        return "of the noise, nothing to others: every client adds all of it, before anything leaves"
    seen = "" if secure_aggregation else ", and the server, which sees the sums of single clients with a share each"
    return f"that at least {clients} clients add their shares of the noise, and do not act together{seen}"
