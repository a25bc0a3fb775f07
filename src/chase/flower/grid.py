"""The post on Flower: letters are pushed to the SuperLink, answers are pulled from it by the letter they answer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key
from flwr.app import Message
from flwr.serverapp import Grid

from chase.core.errors import UpdateError
from chase.federation.rules import MemberList
from chase.federation.transport import Node, NodeId, Reply, SiteMessage, Ticket
from chase.flower import codec

SUPERLINK = 1
"""The node id under which the SuperLink itself reports that a node died or a message expired."""


@cache
def raw_key(line: str) -> bytes:
    """An OpenSSH public key as the SuperLink stores it; remembered, for every look at the nodes asks for all keys."""
    return load_ssh_public_key(line.encode()).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


class FlowerTransport:
    """Letters over Flower's grid."""

    def __init__(self, grid: Grid, roster: Callable[[], MemberList], ttl: float) -> None:
        self._grid, self._roster, self._ttl = grid, roster, ttl
        self._sent_to: dict[Ticket, NodeId] = {}

    def nodes(self) -> Mapping[NodeId, Node]:
        """Nodes that the SuperLink counts as online."""
        keys = {raw_key(m.key).strip(): m.name for m in self._roster().members if m.key}
        found = self._grid.get_nodes()
        return {
            n.node_id: Node(keys.get(n.public_key.strip(), ""), n.last_activated_at)
            for n in found
            if n.status == "online"
        }

    def send(self, letters: Sequence[SiteMessage]) -> list[Ticket | None]:
        """Push letters; arrays that several of them share travel to the SuperLink once."""
        messages = [
            Message(
                codec.pack_letter(letter),
                dst_node_id=letter.node,
                message_type=codec.KINDS[letter.kind],
                ttl=self._ttl,
                group_id=str(letter.order.round if letter.order else 0),
            )
            for letter in letters
        ]
        tickets = [ticket or None for ticket in self._grid.push_messages(messages)] if messages else []
        tickets += [None] * (len(letters) - len(tickets))
        for letter, ticket in zip(letters, tickets, strict=True):
            if ticket is not None:
                self._sent_to[ticket] = letter.node
        return tickets

    def collect(self, tickets: Collection[Ticket]) -> list[Reply]:
        """Pull the replies that are there."""
        return [self._open(message) for message in self._grid.pull_messages(list(tickets))]

    def _open(self, message: Message) -> Reply:
        ticket, sender = message.metadata.reply_to_message_id, message.metadata.src_node_id
        if message.has_error():
            return Reply(ticket, None, f"{message.error.reason or 'no reason given'} (code {message.error.code})")
        if sender != self._sent_to.get(ticket):
            return Reply(ticket, None, "the answer came from another node than was asked", unfit=True)
        try:
            body = codec.unpack(message.content)
        except UpdateError as error:
            return Reply(ticket, None, str(error), unfit=True)
        return Reply(ticket, None, body) if isinstance(body, str) else Reply(ticket, body)
