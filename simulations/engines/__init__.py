"""Engines that implement `flwr.serverapp.Grid`: the strategy does not know which one it talks to."""
