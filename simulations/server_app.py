"""The Flower ServerApp: what `flwr run .` starts."""

from __future__ import annotations

import logging

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from simulations.engines.requirements import refuse_unfit

app = ServerApp()
log = logging.getLogger("flwr")


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the experiment of the run config, save it, and end the log with its table.

    A run that was stopped goes on after its last checkpoint in the folder `out`.
    Raises `ValueError`, `OSError` or `fedfair.node.node.ClientError` with one sentence saying what is wrong.
    """
    refuse_unfit("the SuperLink was started from another environment than this app's; `fedfair superlink` says how to "
                 "end it")  # before the imports that would fail
    from simulations.flower_run import serve

    serve(grid, context)
