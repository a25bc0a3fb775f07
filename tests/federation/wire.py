"""A transport without a network that packs and unpacks every message as Flower carries it."""

from __future__ import annotations

from dataclasses import dataclass, field

from federation.transports import AtOnce
from flwr.app import Message
from flwr.supercore.task_identity import TaskIdentity

from chase.federation.transport import NodeId, Reply, SiteMessage, Ticket
from chase.flower import client_app, codec
from chase.flower.packing import pack_message, read_message


@dataclass
class Wire(AtOnce):
    """Sites answer at once with the installed client; some answers are lost."""

    lost: set[tuple[NodeId, str]] = field(default_factory=set)
    """(node, kind) whose answers never come."""
    rounds: tuple[int, ...] | None = None
    """The rounds in which answers are lost; None = all."""
    seen: list[tuple[NodeId, str, list[bytes]]] = field(default_factory=list)
    """All that the server received."""

    def do(self, letter: SiteMessage) -> Ticket:
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        ticket = f"{len(self.seen)}-{letter.node}-{letter.kind}"
        down = Message(codec.pack_letter(letter), dst_node_id=letter.node, message_type=codec.KINDS[letter.kind])
        up = pack_message(client_app.answer(down, self.homes[letter.node]))
        self.seen.append((letter.node, letter.kind, up[2:]))
        round = letter.order.round if letter.order is not None else letter.header.get("of", 0)
        if (letter.node, letter.kind) in self.lost and (self.rounds is None or round in self.rounds):
            return ticket
        objects = {up[i].decode(): up[i + 1] for i in range(2, len(up), 2)}
        body = codec.unpack(read_message(up[-2].decode(), objects).content)
        failed = isinstance(body, codec.Failure)
        self.answers[ticket] = Reply(ticket, None, body.reason, not body.again) if failed else Reply(ticket, body)
        return ticket
