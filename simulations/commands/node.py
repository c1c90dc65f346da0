"""`fedfair node` and `fedfair superlink`: a node's policy, and the SuperLink of this machine.

`fedfair node`: write a node's policy, to be edited by its owner.

`fedfair superlink`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import tomli_w
import typer

from simulations.settings.names import pairs

_HEAD = """\
# What this node answers, whoever asks; what is not listed is refused. docs/node-policy.md has every key.
# The ledger beside this file adds up what was released of these records, over all runs and servers: keep it. Entries
# about the same people must have the same name. A name with a year in it has a budget for that year.
# No exact figure leaves. If the server may count decisions on held-out records, add
#   exact_exchanges = ["exchanges.send_evaluation"]
#   evaluated_parts = ["valid", "test"]

"""
_LISTS: dict[str, list[str]] = {
    "exchanges": ["exchanges.send_sizes", "exchanges.send_counts", "exchanges.send_gradient_sum",
                  "exchanges.send_local_epoch", "exchanges.send_corrected_epochs", "exchanges.send_scores",
                  "moment_sums.send_moments", "private_counts.send_private_counts",
                  "private_counts.send_private_front_counts"],
    "rules": ["flat", "per-group", "global", "global-adapt"], "queries": ["above", "above-and-below", "group-sizes"],
    "models": ["linear", "logistic", "mlp"]}


def init(file: Annotated[Path, typer.Argument(help="The node's own file.")],
         schema: Annotated[Path, typer.Option(help="The schema that all nodes agreed on.")],
         epsilon: Annotated[float, typer.Option(help="Largest epsilon for one record, over all runs and servers.")],
         delta: Annotated[float, typer.Option(help="Delta of that epsilon; below one over the number of records.")
                          ] = 1e-6,
         noise: Annotated[float, typer.Option(help="Smallest noise multiplier of a release, by the node's own noise."
                                              )] = 0.8,
         name: Annotated[str, typer.Option(help="Name of the records in the ledger; by default the file's.")] = "",
         site: Annotated[str, typer.Option(help="Column of the file whose values are clients of their own, such as "
                                           "wards; by default the node is one client.")] = "",
         set_: Annotated[list[str], typer.Option("--set", help="A setting of the data that was agreed on beside the "
                                                 "schema, key=value, for example features=binned or split=[...].")
                         ] = [],  # noqa: B006 - Typer copies it
         out: Annotated[Path, typer.Option(help="File to write.")] = Path("fedfair-node.toml")) -> None:
    """Check the node's own file against a schema, and write a policy for it: what the node answers, and how much.

    Example: fedfair node init patients.csv --schema study.toml --epsilon 3 --name "patients 2026"
    """
    from fedfair.client_app import refuse_single_records
    from fedfair.node.policy import read_policy
    from fedfair.protocol.task import Task

    agreed = pairs(set_)
    task = Task(partition="nodes", schema_file=str(schema), **agreed).at_node(str(file), 1, site)
    held = task.data()
    refuse_single_records(task, task.clients_data().group_sizes("train"))
    entry: dict[str, Any] = {
        "name": name or file.stem, "file": _from(out.parent, file), "largest_epsilon": epsilon, "delta": delta,
        "smallest_noise_multiplier": noise, "largest_sampling_rate": 1.0,
        "task": {"partition": "nodes", "schema_file": _from(out.parent, schema), **agreed}}
    entry |= {"site": site} if site else {}
    with out.open("x", encoding="utf-8") as new:
        new.write(_HEAD + tomli_w.dumps({**_LISTS, "data": [entry]}))
    try:
        read_policy(out)
    except ValueError:
        out.unlink()  # nobody is to start a node with it
        raise
    print(f"{out}: {file} is like {schema}, with {sum(len(part) for _, part in held):,} records. Read the policy, then "
          f"start the node with --node-config 'partition-id=N num-partitions=OF policy=\"{out}\"'")


def _from(folder: Path, file: Path) -> str:
    """Return a file's path as seen from a folder."""
    return os.path.relpath(file.absolute(), folder.absolute())


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
