"""Messages and keys as Flower has them: a message as the objects that travel, and back; a public key in PEM."""

from __future__ import annotations

from functools import cache

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_public_key
from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree, no_object_id_recompute
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents


@cache
def raw_key(line: str) -> bytes:
    """An OpenSSH public key as the SuperLink stores it; remembered, for every look at the nodes asks for all keys."""
    return load_ssh_public_key(line.encode()).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def read_message(root: str, contents: dict[str, bytes]) -> Message:
    """A message from its objects."""
    message = inflate_object_from_contents(root, contents)
    if not isinstance(message, Message):
        raise TypeError(f"a {type(message).__name__} came in place of a message")
    message.metadata.__dict__["_message_id"] = root
    return message


def pack_message(message: Message) -> list[bytes]:
    """A message as it is sent on: the message without content, the tree of its objects, then ids and objects."""
    message.metadata.__dict__["_message_id"] = message.object_id
    with no_object_id_recompute():
        tree = get_object_tree(message)
        parts = [message_to_proto(remove_content_from_message(message)).SerializeToString(), tree.SerializeToString()]
        for name, item in get_all_nested_objects(message).items():
            parts += [name.encode(), item.deflate()]
    return parts
