"""A site's line to the server: Flower's fleet API, called with the site's key, and nothing else of Flower's.

A call that finds nobody is tried again until somebody is there; a refusal is raised at once. The server is asked to
hold a request for messages until there is one (the header ``WAIT``), so a site neither polls nor waits.
"""

from __future__ import annotations

import email.utils
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
    RegisterNodeFleetRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    ObjectTree,
    PullObjectRequest,
    PushObjectRequest,
)
from flwr.proto.message_pb2 import Message as MessageProto
from flwr.proto.node_pb2 import Node
from flwr.supercore.error import FlowerError
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufRequestContext
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from chase.core.errors import FederationError
from chase.core.text import clean

WAIT = "chase-wait"
"""Header of a request for messages: seconds that the server may hold it until there is one."""
HOLD = 20.0
HEARTBEAT = 15
"""Seconds: a node that says nothing for twice as long counts as gone."""
AHEAD, BEHIND = 5.0, 305.0
"""Seconds by which a site's clock may be ahead of and behind the server's: Flower refuses signatures outside."""
AWAY = (408, 502, 503, 504)
"""Answers after which a site tries again."""
ELSEWHERE = (
    "what answers at this address is not the server of a federation: give HOST:PORT of its proxy, and see whether a "
    "firewall or proxy lies between"
)
MOST_OBJECTS = 20_000
UPLOAD_UNDER_WAY = ""
"""In place of the number of an upload: the SuperLink finds the one that an object belongs to."""
Result = TypeVar("Result")
LOG = logging.getLogger("chase.node")


class SiteRefused(FederationError):
    """The server does not let the site in, or not any more."""


class RunOver(FederationError):
    """The run that a message belongs to has ended: its answer is of no use."""


class _Extra:
    """Adds our header to requests for messages and notes the server's clock."""

    def __init__(self) -> None:
        self.skew: float | None = None

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        if context.rpc_method.endswith("/PullMessages"):
            context.request.headers[WAIT] = str(HOLD)
        before = time.time()
        response = call_next(context)
        told = response.headers.get("date")
        if told and time.time() - before < 2:  # not after a request that was held
            there = email.utils.parsedate_to_datetime(told).timestamp() + 0.5  # the header has whole seconds
            self.skew = (before + time.time()) / 2 - there
        return response


def read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """A site's private key."""
    try:
        key = load_ssh_private_key(path.read_bytes(), None)
    except (OSError, ValueError) as error:
        raise FederationError(f"cannot read the key {path}: {error}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise FederationError(f"{path} is not the key of a site: it is not an EC key")
    return key


class Fleet:
    """An open line."""

    def __init__(self, server: str, trust: Path | None, key: Path | None) -> None:
        private, public = generate_key_pairs() if key is None else (read_key(key), read_key(key).public_key())
        self._keyless, self._public, self._extra = key is None, public_key_to_bytes(public), _Extra()
        self._client = FleetHttpClient.from_server_address(
            server,
            trust is None,
            None if trust is None else str(trust),
            [RuntimeVersionHttpInterceptor("SuperNode"), NodeAuthHttpInterceptor(private, public), self._extra],
        )
        self._node, self._trouble = Node(), ""

    @property
    def skew(self) -> float | None:
        """Seconds by which the clock here is ahead of the server's, to about half a second; None if not known."""
        return self._extra.skew

    def _call(self, call: Callable[[], Result]) -> Result:
        """Call until somebody is there; a trouble is said once, and when it is over."""
        pause = 0.5
        while True:
            try:
                found = call()
                self._tell("")
                return found
            except httpx.TransportError as error:
                if not_trusted(error):
                    raise SiteRefused(certificate_sentence(clean(str(error)))) from None
                self._tell(f"the server cannot be reached ({clean(str(error)) or type(error).__name__}), trying again")
            except httpx.HTTPStatusError as error:
                status = error.response.status_code
                if status == httpx.codes.FORBIDDEN:
                    raise RunOver("the run has ended") from None
                if status not in AWAY:
                    raise SiteRefused(self._reason(error.response)) from None
                self._tell(f"the server does not answer ({status}), trying again")
            time.sleep(pause)
            pause = min(10.0, 2 * pause)

    def _tell(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            LOG.warning("%s", trouble)
        elif self._trouble and not trouble:
            LOG.info("the server answers again")
        self._trouble = trouble

    def _reason(self, response: httpx.Response) -> str:
        skew = self.skew
        if response.status_code == httpx.codes.UNAUTHORIZED and skew is not None and not -BEHIND < skew < AHEAD:
            return clock_sentence(skew)
        if response.status_code in (httpx.codes.NOT_FOUND, httpx.codes.METHOD_NOT_ALLOWED):
            return ELSEWHERE
        told = FlowerError.from_json(response.text)
        said = told.message if told is not None else response.text
        return f"the server refuses this site: {clean(said) or response.status_code}"

    def enter(self) -> int:
        """Tell the server that the site is here; returns the node's id."""
        request = ActivateNodeRequest(public_key=self._public, heartbeat_interval=HEARTBEAT)
        try:
            if self._keyless:
                self._call(lambda: self._client.RegisterNode(RegisterNodeFleetRequest(public_key=self._public)))
            self._node = Node(node_id=self._call(lambda: self._client.ActivateNode(request)).node_id)
        except RunOver:
            raise SiteRefused(ELSEWHERE) from None
        return self._node.node_id

    def leave(self) -> None:
        """Tell the server that the site goes."""
        if self._node.node_id:
            with suppress(httpx.HTTPError, RuntimeError):  # it will notice
                self._client.DeactivateNode(DeactivateNodeRequest(node_id=self._node.node_id))
        self._client.close()

    def beat(self) -> bool | None:
        """Tell the server that the site is still here; False where it no longer knows the site, None if it is away."""
        request = SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=HEARTBEAT)
        try:
            return bool(self._client.SendNodeHeartbeat(request).success)
        except httpx.TransportError:
            return None  # not answered is not refused
        except httpx.HTTPStatusError as error:
            return None if error.response.status_code in AWAY else False

    def next_message(self) -> tuple[MessageProto, ObjectTree] | None:
        """A message, when there is one; None after a while without."""
        began = time.monotonic()
        found = self._call(lambda: self._client.PullMessages(PullMessagesRequest(node=self._node)))
        if not found.messages_list:
            time.sleep(0.0 if time.monotonic() - began > 1.0 else 1.0)  # a server that does not hold requests
            return None
        return found.messages_list[0], found.message_object_trees[0]

    def pull(self, run: int, tree: ObjectTree, patience: float = 180.0) -> dict[str, bytes]:
        """All objects of a message, which may still be on their way to the server."""
        names = list(dict.fromkeys(_names(tree)))
        if len(names) > MOST_OBJECTS:
            raise FederationError(f"a message of {len(names)} objects is not accepted (at most {MOST_OBJECTS})")
        until, found = time.monotonic() + patience, {}
        for name in names:
            request, pause = PullObjectRequest(node=self._node, run_id=run, object_id=name), 0.02
            while True:
                got = self._call(lambda request=request: self._client.PullObject(request))  # type: ignore[misc]
                if got.object_available:
                    found[name] = got.object_content
                    break
                if not got.object_found or time.monotonic() > until:
                    raise FederationError("a message is incomplete at the server")
                time.sleep(pause)
                pause = min(0.5, 2 * pause)
        return found

    def confirm(self, run: int, message: str) -> None:
        """Tell the server that a message is here."""
        request = ConfirmMessageReceivedRequest(node=self._node, run_id=run, message_object_id=message)
        self._call(lambda: self._client.ConfirmMessageReceived(request))

    def push(self, message: MessageProto, tree: ObjectTree, objects: dict[str, bytes], seconds: float) -> None:
        """Send an answer; where the server lost the first part of it, all of it again."""
        run = message.metadata.run_id
        request = PushMessagesRequest(
            node=self._node, messages_list=[message], message_object_trees=[tree], clientapp_runtime_list=[seconds]
        )

        def stored(name: str, session: str) -> bool:
            part = PushObjectRequest(
                node=self._node, run_id=run, object_id=name, object_content=objects[name], session_id=session
            )
            return bool(self._call(lambda: self._client.PushObject(part)).stored)

        for _ in range(3):
            told = self._call(lambda: self._client.PushMessages(request))
            wanted = set(told.objects_to_push)
            if not wanted:  # it has the answer from a request whose reply was lost, but not all parts of it
                for name in objects:
                    stored(name, UPLOAD_UNDER_WAY)
                return
            if all(stored(name, told.session_id) for name in objects if name in wanted):
                return
        raise FederationError("the server did not store an answer: it is sent again when it is asked for")


def not_trusted(error: httpx.TransportError) -> bool:
    """Whether TLS itself failed; a busy server that lets a handshake wait, or ends it, is tried again."""
    said = str(error).lower()
    if isinstance(error, httpx.TimeoutException) or "eof" in said:
        return False
    return any(word in said for word in ("certificate", "ssl", "tls"))


def certificate_sentence(said: str) -> str:
    """What to tell people whose connection is refused by TLS, and what to do."""
    hints = {
        "not yet valid": "the clock of this machine is behind: set it (NTP)",
        "expired": "at the server, run `chase federation renew`; if the clock of this machine is wrong, set it (NTP)",
        "mismatch": "connect by a name that the certificate has, or add this one with `chase federation renew --host`",
        "self-signed": "the ca.crt here is of another federation: copy the server's keys/ca.crt again",
        "self signed": "the ca.crt here is of another federation: copy the server's keys/ca.crt again",
        "unable to get local issuer": "the ca.crt here is of another federation: copy the server's keys/ca.crt again",
        "signature failure": "the ca.crt here is of another federation: copy the server's keys/ca.crt again",
        "wrong_version": "the server's port does not use TLS: give the port of its proxy",
    }
    hint = next((hint for word, hint in hints.items() if word in said.lower()), "compare the fingerprints of ca.crt")
    return f"the server's certificate is not accepted ({said}): {hint}"


def clock_sentence(skew: float) -> str:
    """What to tell people whose clock is wrong."""
    way = "ahead of" if skew > 0 else "behind"
    return (
        f"the clock of this machine is {abs(skew):.0f} s {way} the server's: the server accepts at most {AHEAD:.0f} s "
        f"ahead and {BEHIND:.0f} s behind; set the clock (NTP) and connect again"
    )


def _names(tree: ObjectTree) -> Iterator[str]:
    for child in tree.children:
        yield from _names(child)
    yield tree.object_id
