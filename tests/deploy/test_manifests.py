"""The compose file and the Kubernetes manifest: by the schema, and by the parsers of the programs that they start."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "deploy"


def compose() -> dict[str, Any]:
    made: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    return made


def manifests() -> dict[tuple[str, str], dict[str, Any]]:
    made = yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text())
    return {(each["kind"], each["metadata"]["name"]): each for each in made}


def pods() -> list[dict[str, Any]]:
    return [each["spec"]["template"]["spec"] for (kind, _), each in manifests().items() if kind == "Deployment"]


def parsed(command: list[str]) -> argparse.Namespace:
    """Return a command's arguments as the program reads them; it ends for one that it does not know."""
    from flwr.superlink.cli.flower_superlink import _parse_args_run_superlink  # here: it starts a database
    from flwr.supernode.cli.flower_supernode import _parse_args_run_supernode

    parsers = {"flower-superlink": _parse_args_run_superlink, "flower-supernode": _parse_args_run_supernode}
    return parsers[command[0]]().parse_args(command[1:])


def test_the_compose_file_is_one() -> None:
    import jsonschema

    schema = json.loads((Path(__file__).parent / "compose-spec.json").read_text())
    jsonschema.validate(compose(), schema)
    broken = compose()
    broken["services"]["superlink"]["comand"] = []
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, schema)


def test_commands_are_understood_by_their_programs() -> None:
    commands = [service["command"] for service in compose()["services"].values() if "command" in service]
    commands += [container["args"] for pod in pods() for container in pod["containers"] if "args" in container]
    assert [command[0] for command in commands] == ["flower-superlink", "flower-supernode"] * 2
    for command in commands:
        made = parsed(command)
        assert not made.insecure
        if command[0] == "flower-superlink":
            assert made.enable_supernode_auth
            assert made.ssl_keyfile
        else:
            assert made.auth_supernode_private_key
            assert "policy='/site/fedfair-node.toml'" in made.node_config
    with pytest.raises(SystemExit):
        parsed(["flower-supernode", "--super-link", "x"])


def test_everything_that_is_mounted_is_there() -> None:
    for pod in pods():
        held = {volume["name"] for volume in pod["volumes"]}
        mounted = {mount["name"] for container in pod["containers"] for mount in container["volumeMounts"]}
        assert held == mounted
        for container in pod["containers"]:
            assert container["resources"]["limits"]["memory"]
    service, server = manifests()["Service", "superlink"], manifests()["Deployment", "superlink"]
    assert service["spec"]["selector"].items() <= server["spec"]["template"]["metadata"]["labels"].items()


def test_the_control_port_is_for_this_machine_alone() -> None:
    """Flower has control and fleet on one port; whoever reaches the first may start any program on all nodes."""
    assert compose()["services"]["superlink"]["ports"] == ["127.0.0.1:8000:8000"]
    assert [port["port"] for port in manifests()["Service", "superlink"]["spec"]["ports"]] == [9443]
    gate = (FOLDER / "gate.conf").read_text()
    assert "location /v1/fleet/ {" in gate
    assert "location / { return 403; }" in gate
