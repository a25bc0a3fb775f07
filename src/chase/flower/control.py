"""What the server's people do at the SuperLink: register and remove keys, and start a run.

    python -m chase.flower.control FEDERATION register KEY NAME ... | node KEY | unregister NODE | submit

Prints one line of JSON. The SuperLink opens its control API only to who holds the federation's secret.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from flwr.cli.build import build_fab_from_disk
from flwr.cli.supernode.register import try_load_public_key
from flwr.common.serde import fab_to_proto
from flwr.proto.control_pb2 import ListNodesRequest, RegisterNodeRequest, StartRunRequest, UnregisterNodeRequest
from flwr.supercore.control.control_http_client import ControlHttpClient
from flwr.supercore.error import FlowerError
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufRequestContext

from chase.core.errors import ChaseError, FederationError
from chase.core.text import clean
from chase.federation.ops import launch
from chase.federation.rules import FederationDirectory
from chase.flower.gateway import SECRET
from chase.flower.packing import raw_key


class WithSecret:
    """Adds the federation's secret to every request."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        """One request."""
        context.request.headers[SECRET] = self._secret
        return call_next(context)


@contextmanager
def client_of(federation: FederationDirectory) -> Iterator[ControlHttpClient]:
    """The control API; what it refuses is one sentence."""
    host, port = federation.address
    client = ControlHttpClient.from_server_address(
        f"{host}:{port}",
        not federation.secure,
        str(launch.ca(federation)) if federation.secure else None,
        [RuntimeVersionHttpInterceptor("Flower CLI"), WithSecret(launch.control_secret(federation))],
    )
    try:
        yield client
    except httpx.HTTPStatusError as error:
        told = FlowerError.from_json(error.response.text)
        details = "" if told is None else f"{told.message} {told.public_details or ''}"
        raise FederationError(f"the SuperLink refuses: {clean(details or error.response.text)}") from None
    except httpx.TransportError as error:
        raise FederationError(f"the SuperLink on {host}:{port} cannot be reached: {clean(str(error))}") from None
    finally:
        client.close()


def register(federation: FederationDirectory, key: Path, name: str) -> str:
    """Register a site's public key; returns Flower's id of its node."""
    with client_of(federation) as client:
        request = RegisterNodeRequest(public_key=try_load_public_key(key), name=name)
        return str(client.RegisterNode(request).node_id)


def register_each(federation: FederationDirectory, given: list[str]) -> list[str]:
    """Register keys and names in turn: one process for all of them. "-" for a key that was registered before."""
    found = []
    for key, name in zip(given[::2], given[1::2], strict=True):
        try:
            found.append(register(federation, Path(key), name))
        except FederationError as error:
            if "already in use" not in str(error) or len(given) == 2:
                raise
            found.append("-")
    return found


def node_of(federation: FederationDirectory, key: str) -> str:
    """Flower's id of the node that has a public key; "-" where none has."""
    wanted = raw_key(key).strip()
    with client_of(federation) as client:
        nodes = client.ListNodes(ListNodesRequest()).nodes_info
    return next((str(n.node_id) for n in nodes if n.public_key.strip() == wanted and not n.unregistered_at), "-")


def unregister(federation: FederationDirectory, node: str) -> str:
    """Remove a node's key for good."""
    with client_of(federation) as client:
        client.UnregisterNode(UnregisterNodeRequest(node_id=int(node)))
    return node


def submit(federation: FederationDirectory) -> str:
    """Start a Flower run for the rounds that are left; returns Flower's id of it."""
    content = build_fab_from_disk(launch.write_app(federation))
    fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
    with client_of(federation) as client:
        response = client.StartRun(StartRunRequest(fab=fab_to_proto(fab)))
    if not response.HasField("run_id"):
        raise FederationError("the SuperLink did not start a run: see its log")
    return str(response.run_id)


def main(arguments: list[str]) -> int:
    """One command."""
    federation, verb, given = FederationDirectory(Path(arguments[0])), arguments[1], arguments[2:]
    try:
        if verb == "register":
            found = " ".join(register_each(federation, given))
        elif verb == "node":
            found = node_of(federation, given[0])
        elif verb == "unregister":
            found = unregister(federation, given[0])
        else:
            found = submit(federation)
    except ChaseError as error:
        print(json.dumps({"error": str(error)}))
        return 2
    print(json.dumps({"value": found}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
