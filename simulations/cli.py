"""The command `fedfair`; `simulations.commands` has its parts."""

from __future__ import annotations

import typer

from simulations.commands import data, examining, fitting, node, papers, running, settings
from simulations.commands.terminal import plain_errors, version
from simulations.commands.words import Command

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False,
                  help="What does each group pay for privacy, and which method closes the gap?",
                  epilog="Exit codes: 0 done; 1 an epsilon was refuted, or a trial failed; 2 something given was "
                         "wrong: one sentence says what. FEDFAIR_LOG=INFO shows the log of Flower.")
app.callback()(version)
on_data = typer.Typer(no_args_is_help=True, help="List, fetch and describe data sets, and check a file.")
app.add_typer(on_data, name="data")
on_node = typer.Typer(no_args_is_help=True, help="Protect a node that has records of its own.")
app.add_typer(on_node, name="node")

app.command(cls=Command)(plain_errors(fitting.fit))
app.command(cls=Command)(plain_errors(running.compare))
app.command(cls=Command)(plain_errors(running.run))
app.command(cls=Command)(plain_errors(running.sweep))
app.command(cls=Command)(plain_errors(papers.curve))
app.command(cls=Command)(plain_errors(examining.audit))
app.command(epilog=papers.REPRODUCED, cls=Command)(plain_errors(papers.reproduce))
app.command(cls=Command)(plain_errors(fitting.choose))
app.command(cls=Command)(plain_errors(fitting.predict))
app.command(cls=Command)(plain_errors(fitting.export))
app.command(cls=Command)(plain_errors(examining.ledger))
app.command(cls=Command)(plain_errors(examining.report))
app.command(cls=Command)(plain_errors(settings.settings))
app.command(cls=Command)(plain_errors(settings.methods))
app.command(cls=Command)(plain_errors(node.superlink))
on_data.command("list", cls=Command)(data.list_data)
on_data.command(cls=Command)(plain_errors(data.fetch))
on_data.command(cls=Command)(plain_errors(data.describe))
on_data.command(cls=Command)(plain_errors(data.check))
on_data.command(cls=Command)(plain_errors(data.schema))
on_node.command(cls=Command)(plain_errors(node.init))
