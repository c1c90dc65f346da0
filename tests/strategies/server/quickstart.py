"""A Flower app in the form of Flower's PyTorch quickstart, which trains privately."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from torch import Tensor, nn

from fedfair.node.private_training import train_privately
from simulations import Experiment
from simulations.engines.local import LocalGrid
from strategies.server.existing_app import PrivateTraining
from tests.strategies.two_groups import two_groups

Train = Callable[[nn.Module, Tensor, Tensor, Tensor, Message], dict[str, Any] | None]
EXPERIMENT = Experiment(**two_groups(), strategy="dpsgd-f", model="logistic", partition="site", clients=2,
                        sync="epoch", epochs=3, batch_size=32, noise_multiplier=0.8, clip_norm=0.3, delta=1e-3)


def privately(model: nn.Module, x: Tensor, y: Tensor, group: Tensor, message: Message) -> dict[str, Any]:
    return train_privately(model, x, y, group, str(message.content["fedfair"]["plan"]))


def application(train: Train) -> ClientApp:
    """Make the quickstart's client, on the records of `EXPERIMENT`'s clients."""
    app = ClientApp()

    @app.train()
    def handler(message: Message, context: Context) -> Message:
        model = EXPERIMENT.task.build_model()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        data = EXPERIMENT.task.clients_data()[int(context.node_config["partition-id"])].train
        told = train(model, data.x, data.y, data.group, message)
        content = RecordDict({"arrays": ArrayRecord(model.state_dict()),
                              "metrics": MetricRecord({"num-examples": len(data)})})
        if told is not None:
            content["fedfair"] = ConfigRecord(told)
        return Message(content, reply_to=message)

    return app


def started(strategy: PrivateTraining, train: Train = privately, rounds: int = 3) -> dict[str, Tensor]:
    """Return the weights after some rounds."""
    arrays = ArrayRecord(EXPERIMENT.task.build_model().state_dict())
    grid = LocalGrid(application(train), 2)
    return strategy.start(grid, arrays, num_rounds=rounds).arrays.to_torch_state_dict()


def around_fedavg(**settings: Any) -> PrivateTraining:
    settings = {"batch_size": 32, "noise_multiplier": 0.8, "clip_norm": 0.3, "delta": 1e-3, **settings}
    return PrivateTraining(FedAvg(fraction_evaluate=0.0), ("a", "b"), **settings)
