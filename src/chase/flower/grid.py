"""The transport on Flower: letters are pushed to the SuperLink, answers are pulled from it by the letter they answer.

Nothing that a site does holds up the others: an answer that is not whole yet is looked at again with the next
collection, and one that is too large, damaged or never whole becomes an error under its site's ticket.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from flwr.app import Message
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, ObjectTree, PullObjectRequest, PushObjectRequest
from flwr.proto.message_pb2 import Message as MessageProto
from flwr.proto.node_pb2 import Node as NodeProto
from flwr.proto.runtime_pb2 import GetNodesRequest, PullAppMessagesRequest, PushAppMessagesRequest
from flwr.supercore.runtime import RuntimeHttpClient

from chase.core.errors import FederationError, UpdateError
from chase.core.text import clean
from chase.federation.rules import MemberList
from chase.federation.transport import Node, NodeId, Reply, SiteMessage, Ticket
from chase.flower import codec
from chase.flower.fleet import UPLOAD_UNDER_WAY
from chase.flower.packing import pack_message, raw_key, read_message

SUPERLINK = 1
"""The node id under which the SuperLink itself reports that a node died or a message expired."""
WHOLE = 30.0
"""Seconds that a site has to send the next piece of an answer that it has begun to send."""
MOST_OBJECTS = 20_000
LOG = logging.getLogger("chase.post")


@dataclass
class Coming:
    """An answer of which not every object is here."""

    message: MessageProto
    tree: ObjectTree
    since: float
    left: list[str]
    found: dict[str, bytes] = field(default_factory=dict)
    size: int = 0


class FlowerTransport:
    """Letters over Flower's runtime API."""

    def __init__(
        self, client: RuntimeHttpClient, run: int, roster: Callable[[], MemberList], ttl: float, most_answer: int
    ) -> None:
        self._client, self._run, self._roster, self._ttl, self._most = client, run, roster, ttl, most_answer
        self._me = NodeProto(node_id=SUPERLINK)
        self._sent_to: dict[Ticket, NodeId] = {}
        self._coming: dict[Ticket, Coming] = {}

    def nodes(self) -> Mapping[NodeId, Node]:
        """Nodes that the SuperLink counts as online."""
        keys = {raw_key(m.key).strip(): m.name for m in self._roster().members if m.key}
        found = self._client.GetNodes(GetNodesRequest()).nodes
        return {
            n.node_id: Node(keys.get(n.public_key.strip(), ""), n.last_activated_at)
            for n in found
            if n.status == "online"
        }

    def send(self, letters: Sequence[SiteMessage]) -> list[Ticket | None]:
        """Push letters; arrays that several of them share travel to the SuperLink once."""
        if not letters:
            return []
        messages, trees, objects = [], [], dict[str, bytes]()
        for letter in letters:
            parts = pack_message(self._message(letter))
            messages.append(MessageProto.FromString(parts[0]))
            trees.append(ObjectTree.FromString(parts[1]))
            objects |= {parts[i].decode(): parts[i + 1] for i in range(2, len(parts), 2)}
        told = self._client.PushMessages(PushAppMessagesRequest(messages_list=messages, message_object_trees=trees))
        for name in told.objects_to_push:
            self._push(name, objects[name], told.session_id)
        sent = zip(told.message_ids, messages, trees, strict=True)
        tickets = [ticket or self._sent_before(message, tree, objects) for ticket, message, tree in sent]
        self._sent_to |= {t: letter.node for t, letter in zip(tickets, letters, strict=True) if t is not None}
        return tickets

    def _push(self, name: str, content: bytes, session: str) -> bool:
        request = PushObjectRequest(
            node=self._me, run_id=self._run, object_id=name, object_content=content, session_id=session
        )
        return bool(self._client.PushObject(request).stored)

    def _sent_before(self, message: MessageProto, tree: ObjectTree, objects: Mapping[str, bytes]) -> Ticket | None:
        """The ticket of a letter that is refused because an earlier request, whose reply was lost, has brought it.

        Its objects are missing then: the SuperLink takes them now. It takes none of a letter that it does not have.
        """
        stored = {name: self._push(name, objects[name], UPLOAD_UNDER_WAY) for name in dict.fromkeys(_names(tree))}
        return message.metadata.message_id if stored[tree.object_id] else None

    def _message(self, letter: SiteMessage) -> Message:
        return Message(
            codec.pack_letter(letter),
            dst_node_id=letter.node,
            message_type=codec.KINDS[letter.kind],
            ttl=self._ttl,
            group_id=str(letter.order.round if letter.order else 0),
        )

    def collect(self, tickets: Collection[Ticket]) -> list[Reply]:
        """The replies to these tickets that are there, whole."""
        waiting = [t for t in tickets if t not in self._coming]
        if waiting:
            found = self._client.PullMessages(PullAppMessagesRequest(message_ids=waiting))
            for message, tree in zip(found.messages_list, found.message_object_trees, strict=True):
                names = list(dict.fromkeys(_names(tree)))
                ticket = message.metadata.reply_to_message_id
                self._coming[ticket] = Coming(message, tree, time.monotonic(), names)
        answers = (self._look(ticket, self._coming[ticket]) for ticket in tickets if ticket in self._coming)
        return [answer for answer in answers if answer is not None]

    def _look(self, ticket: Ticket, coming: Coming) -> Reply | None:
        """The answer, if it is whole or can never be; whatever is wrong with it is its site's alone."""
        try:
            if not self._pull(coming):
                return None
            answer = self._open(ticket, coming)
        except (FederationError, UpdateError) as error:
            answer = Reply(ticket, None, clean(str(error)), unfit=True)
        except Exception as error:  # one site's answer must not end the run, whatever it is
            LOG.exception("an answer cannot be read")
            answer = Reply(ticket, None, f"the answer cannot be read ({type(error).__name__})", unfit=True)
        del self._coming[ticket]
        request = ConfirmMessageReceivedRequest(
            node=self._me, run_id=self._run, message_object_id=coming.message.metadata.message_id
        )
        self._client.ConfirmMessageReceived(request)
        return answer

    def _pull(self, coming: Coming) -> bool:
        """Pull what there is; True when all is here."""
        if len(coming.left) + len(coming.found) > MOST_OBJECTS:
            raise FederationError(f"the answer has more than {MOST_OBJECTS} parts")
        while coming.left:
            name = coming.left[0]
            got = self._client.PullObject(PullObjectRequest(node=self._me, run_id=self._run, object_id=name))
            if not got.object_available:
                if not got.object_found or time.monotonic() - coming.since > WHOLE:
                    raise FederationError("the answer was sent in part only")
                return False
            coming.size += len(got.object_content)
            if coming.size > self._most:
                raise FederationError(f"the answer is larger than the {self._most} bytes that this federation accepts")
            coming.found[name], coming.since = got.object_content, time.monotonic()
            coming.left.pop(0)
        return True

    def _open(self, ticket: Ticket, coming: Coming) -> Reply:
        message = read_message(coming.tree.object_id, coming.found)
        sender = coming.message.metadata.src_node_id
        if message.has_error():
            reason = clean(message.error.reason or "no reason given")
            return Reply(ticket, None, f"{reason} (code {message.error.code})")
        if sender != self._sent_to.get(ticket):
            return Reply(ticket, None, "the answer came from another node than was asked", unfit=True)
        body = codec.unpack(message.content, self._most)
        if isinstance(body, codec.Failure):
            return Reply(ticket, None, body.reason, unfit=not body.again)
        return Reply(ticket, body)


def _names(tree: ObjectTree) -> Iterator[str]:
    for child in tree.children:
        yield from _names(child)
    yield tree.object_id
