"""Letters to sites over a SuperLink whose reply is lost on the way: the client repeats its request by itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from flwr.proto.message_pb2 import PushObjectRequest
from flwr.proto.runtime_pb2 import PushAppMessagesRequest
from flwr.supercore.task_identity import TaskIdentity

from chase.federation.rules import MemberList
from chase.federation.transport import SiteMessage
from chase.flower.grid import FlowerTransport


class Repeated:
    """A SuperLink that has messages of an earlier request, without their objects; it refuses those of others."""

    def __init__(self, known: bool) -> None:
        self._known, self.objects = known, dict[str, bytes]()

    def PushMessages(self, request: PushAppMessagesRequest) -> Any:
        self.sent = request.messages_list
        return SimpleNamespace(message_ids=[""] * len(self.sent), objects_to_push=[], session_id="new")

    def PushObject(self, request: PushObjectRequest) -> Any:
        fits = self._known and not request.session_id and request.object_id not in self.objects
        if fits:
            self.objects[request.object_id] = request.object_content
        return SimpleNamespace(stored=fits)


def sent_over(link: Repeated) -> list[str | None]:
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    post = FlowerTransport(link, 1, lambda: MemberList(()), 60.0, 1 << 20)  # type: ignore[arg-type]
    return post.send([SiteMessage(node, "hello", {"number": node}) for node in (7, 8)])


def test_letters_that_a_lost_reply_has_left_without_objects_get_them() -> None:
    link = Repeated(known=True)
    tickets = sent_over(link)
    assert tickets == [message.metadata.message_id for message in link.sent]
    assert len(link.objects) >= 2


def test_letters_that_the_superlink_does_not_accept_have_no_ticket() -> None:
    link = Repeated(known=False)
    assert sent_over(link) == [None, None]
    assert link.objects == {}
