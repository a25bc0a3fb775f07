"""Who is there: nodes come and go, and each shakes hands before it gets an order.

A site is known by its name. Where nodes are authenticated, the name must be that of the key; a node that claims
another is refused, and so is one whose classes, preprocessing, network or format differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from chase.core.messages import ClientId
from chase.federation.diary import Diary
from chase.federation.rules import MemberList
from chase.federation.transport import Hello, Node, NodeId, Reply, SiteMessage, Ticket, Transport

AGAIN = 30.0
"""Seconds until a node that was refused is asked again."""
LOST = 180.0
"""Seconds after which a handshake that was not answered is given up and sent again."""


@dataclass
class Members:
    """The nodes that can be reached, and the sites among them that shook hands."""

    transport: Transport
    roster: Callable[[], MemberList]
    header: Mapping[str, object]
    """What the handshake offers: settings and contract."""
    diary: Diary
    clock: Callable[[], float]
    authenticated: bool
    at_once: int = 0
    """Handshakes under way at a time; 0 = as many as there are nodes."""
    nodes: dict[ClientId, NodeId] = field(default_factory=dict)
    """Sites that shook hands, by number."""
    names: dict[ClientId, str] = field(default_factory=dict)
    said: dict[ClientId, Hello] = field(default_factory=dict)
    """What each site said of itself at its last handshake."""
    turns: dict[ClientId, int] = field(default_factory=dict)
    """The turns that each site has told of: fewer than before means that it was restored from an older copy."""
    keep_turns: Callable[[dict[ClientId, int]], None] = lambda turns: None
    behind: set[ClientId] = field(default_factory=set)
    """Sites that were restored from an older copy: their next order says so, and they recover what their inbox has."""
    set_back: set[ClientId] = field(default_factory=set)
    """Sites that were found restored from an older copy since this was last looked at."""
    refused: dict[str, str] = field(default_factory=dict)
    """Why a site was refused, by name (or "node 123")."""
    _online: Mapping[NodeId, Node] = field(default_factory=dict)
    _out: frozenset[ClientId] = frozenset()
    _again: set[NodeId] = field(default_factory=set)
    _asked: dict[Ticket, NodeId] = field(default_factory=dict)
    _asked_in: dict[NodeId, str] = field(default_factory=dict)
    _asked_at: dict[NodeId, float] = field(default_factory=dict)

    def here(self) -> dict[ClientId, NodeId]:
        """Sites that shook hands and can be reached now."""
        return {c: n for c, n in self.nodes.items() if n in self._online and c not in self._out}

    def session(self, node: NodeId) -> str:
        """The session of a node that can be reached, else ""."""
        return self._online[node].session if node in self._online else ""

    def name(self, client: ClientId) -> str:
        """The name of a site that is on the list, here or not."""
        known = self.names.get(client)
        return known or next((m.name for m in self.roster().members if m.number == client), f"client {client}")

    def sizes(self, client: ClientId) -> Hello:
        """How large a site said it is."""
        return self.said.get(client, Hello(""))

    def greet_again(self, client: ClientId) -> None:
        """Shake hands with a site once more; it takes part meanwhile."""
        node = self.nodes.get(client)
        if node is not None:
            self._again.add(node)
            self._asked_at.pop(node, None)

    def seen(self, round: int, client: ClientId, turn: int) -> None:
        """Note how many turns a site has taken; fewer than before is told."""
        before = self.turns.get(client, 0)
        if turn < before:
            why = f"it has taken {turn} turns, and had taken {before}: it was restored from an older copy"
            self.diary.note(round, "rolled back", self.name(client), why)
            self.behind.add(client)
            self.set_back.add(client)
        elif turn > before:
            self.behind.discard(client)
        if turn != before:
            self.turns[client] = turn
            self.keep_turns(self.turns)

    def look(self, round: int) -> None:
        """Greet nodes that are new, and take in what those greeted before have answered."""
        self._online = self.transport.nodes()
        self._out = frozenset(m.number for m in self.roster().members if m.out)
        settled, now = {n for n in self.nodes.values() if n in self._online} - self._again, self.clock()
        for ticket, node in list(self._asked.items()):
            if self._asked_in[node] != self.session(node) or now - self._asked_at[node] > LOST:
                del self._asked[ticket], self._asked_at[node]
        waiting = set(self._asked.values())
        new = [
            node
            for node in self._online
            if node not in settled and node not in waiting and now - self._asked_at.get(node, -1e9) >= AGAIN
        ]
        if self.at_once:
            new = new[: max(0, self.at_once - len(self._asked))]
        sent = self.transport.send([SiteMessage(n, "hello", self.header) for n in new])
        self._again -= set(new)
        self._asked_at |= dict.fromkeys(new, now)
        self._asked_in |= {node: self.session(node) for node in new}
        self._asked |= {ticket: node for node, ticket in zip(new, sent, strict=True) if ticket is not None}
        for answer in self.transport.collect(list(self._asked)) if self._asked else []:
            self._receive(round, self._asked.pop(answer.ticket, None), answer)

    def _receive(self, round: int, node: NodeId | None, answer: Reply) -> None:
        if node is None:
            return
        proven = self._online.get(node, Node()).name
        claimed = answer.body.site if isinstance(answer.body, Hello) else ""
        name = ("" if self.authenticated else claimed) or proven or f"node {node}"  # not what an impostor says
        why = self._objection(node, proven, answer)
        if why:
            if self.refused.get(name) != why:
                self.diary.note(round, "refused", name, why)
            self.refused[name] = why
            return
        member = self.roster().named(name)
        assert member is not None  # _objection refuses a name that is not on the list
        back, hello = member.number in self.names, answer.body
        assert isinstance(hello, Hello)  # _objection refuses all else
        self.nodes[member.number], self.names[member.number] = node, name
        before = self.said.get(member.number, hello)
        if before.samples != hello.samples:
            self.diary.note(round, "size changed", name, f"from {before.samples} to {hello.samples} samples")
        self.said[member.number] = hello
        self.seen(round, member.number, hello.turn)
        self.refused.pop(name, None)
        self.diary.note(round, "came back" if back else "joined", name)

    def _objection(self, node: NodeId, proven: str, answer: Reply) -> str:
        if not isinstance(answer.body, Hello):
            return f"no handshake: {answer.error or 'the answer is of another kind'}"
        name = answer.body.site
        member = self.roster().named(name)
        if self.authenticated and name != proven:
            return f"it calls itself '{name}', but its key is {f'that of {proven!r}' if proven else 'on no list'}"
        if member is None:
            return f"'{name}' is not on the list of sites"
        if member.out:
            return f"'{name}' was removed"
        other = self.nodes.get(member.number)
        if other is not None and other != node and other in self._online:
            return f"'{name}' is already connected from another node"
        return "; ".join(answer.body.objections)
