"""`fedfair superlink`."""

from __future__ import annotations


def superlink() -> None:
    """Say which SuperLink `flwr run` on this machine will meet, whether it is stale, and how to end it.

    Example: fedfair superlink
    """
    from simulations.engines import superlink as links

    link, here = links.local_superlink(), links.this_process()
    if link is None:
        if not links.is_silent():
            raise ValueError(f"something answers on port {links.PORT} that is not a SuperLink of `flwr run` here: end "
                             "it, or give another port in FLWR_LOCAL_SUPERLINK_HTTP_API_PORT")
        print("no SuperLink of `flwr run` is running: the next one starts it, in its environment and folder")
        return
    found = links.stale(link, here) if here else []
    if links.is_silent():
        found.append("it does not answer")
    if found:
        raise ValueError(f"the next run meets {links.described(link)}. It is stale: {'; '.join(found)}. To mend it, "
                         f"{links.mend(link)}")
    print(f"The next run meets {links.described(link)}. Relative paths of runs start there. To start afresh, "
          f"{links.mend(link)}")
