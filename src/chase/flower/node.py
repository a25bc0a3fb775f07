"""A site's node: holds the line to the server, and has a worker of its own compute the answers.

It takes the place of Flower's SuperNode, SuperExec and client processes. It opens no port, so nobody on the site's
machine can answer for the site, and it never fetches the code that comes with a Flower run: the worker runs the chase
that is installed here (decision 0090). The worker stays warm between messages and is ended when nothing has come for a
while or when it has grown too large.
"""

from __future__ import annotations

import argparse
import logging
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType

from flwr.app import Error, Message
from flwr.common.constant import ErrorCode
from flwr.common.serde import message_from_proto
from flwr.proto.message_pb2 import Message as MessageProto
from flwr.proto.message_pb2 import ObjectTree

from chase.core.errors import ChaseError, FederationError
from chase.core.processes import memory_of
from chase.federation.transport import CONTACT
from chase.flower import node_messages
from chase.flower.fleet import AHEAD, BEHIND, HEARTBEAT, Fleet, RunOver, SiteRefused, clock_sentence

IDLE = 120.0
"""Seconds without a message after which the worker is ended: an idle site keeps little memory."""
MOST_MEMORY = 4 << 30
"""Bytes that a worker may hold between two messages before it is replaced."""
LOG = logging.getLogger("chase.node")


class WorkerProcess:
    """The process that computes, started when it is first needed."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._last = 0.0

    def ask(self, parts: list[bytes]) -> list[bytes] | None:
        """What it answers; None where it has died over it."""
        line = self._line if self._line is not None and self._alive() else self._start()
        try:
            node_messages.send(line, parts)
            found = node_messages.receive(line)
        except OSError:
            found = None
        self._last = time.monotonic()
        if found is None or self._too_large():
            self.end()
        return found

    def _alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _start(self) -> socket.socket:
        self.end()
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "chase.flower.worker", str(self._home), str(theirs.fileno())]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
        self._line = ours
        return ours

    def _too_large(self) -> bool:
        return self._process is not None and memory_of(self._process.pid) > MOST_MEMORY

    def rest(self) -> None:
        """End it if nothing has come for a while."""
        if self._process is not None and time.monotonic() - self._last > IDLE:
            self.end()

    def end(self) -> None:
        """End it."""
        if self._line is not None:
            self._line.close()  # an idle worker ends when its line is closed
            self._line = None
        if self._process is not None:
            try:
                self._process.wait(2.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None


class SiteNode:
    """Answers messages until it is ended."""

    def __init__(self, fleet: Fleet, home: Path) -> None:
        self._fleet, self._worker, self._contact = fleet, WorkerProcess(home), home / CONTACT
        self._over = threading.Event()
        self._lost = ""

    def run(self) -> None:
        """Connect, then answer; ends with ``SiteRefused`` when the server does not know the site (any more)."""
        self._contact.unlink(missing_ok=True)
        node = self._fleet.enter()
        LOG.info("connected as node %s", node)
        self._touch()
        skew = self._fleet.skew
        if skew is not None and not -BEHIND / 2 < skew < AHEAD / 2:
            LOG.warning("%s", clock_sentence(skew))
        threading.Thread(target=self._beat, daemon=True).start()
        try:
            while not self._lost:
                self._once()
            raise SiteRefused(self._lost)
        finally:
            self._over.set()
            self._worker.end()
            self._fleet.leave()

    def _beat(self) -> None:
        while not self._over.wait(HEARTBEAT / 3):
            known = self._fleet.beat()
            if known:
                self._touch()
            elif known is not None:
                self._lost = "the server no longer knows this site"

    def _touch(self) -> None:
        """Keep when the server last answered, for ``chase site health``."""
        with suppress(OSError):  # a full disk: it is told elsewhere
            self._contact.parent.mkdir(exist_ok=True)
            self._contact.touch()

    def _once(self) -> None:
        found = self._fleet.next_message()
        if found is None:
            self._worker.rest()
            return
        try:
            self._answer(*found)
        except RunOver:
            LOG.info("the run has ended; a message of it is dropped")
        except SiteRefused:
            raise
        except FederationError as error:
            LOG.error("%s", error)

    def _answer(self, message: MessageProto, tree: ObjectTree) -> None:
        began, meta = time.monotonic(), message.metadata
        LOG.info("%s of round %s", meta.message_type, meta.group_id)
        objects = self._fleet.pull(meta.run_id, tree)
        self._fleet.confirm(meta.run_id, meta.message_id)
        parts = [tree.object_id.encode()]
        for name, content in objects.items():
            parts += [name.encode(), content]
        found = self._worker.ask(parts)
        if found is None:
            LOG.error("the worker ended over a message; the server is told")
            found = failure(message)
        reply, reply_tree = MessageProto.FromString(found[0]), ObjectTree.FromString(found[1])
        contents = {found[i].decode(): found[i + 1] for i in range(2, len(found), 2)}
        self._fleet.push(reply, reply_tree, contents, time.monotonic() - began)
        LOG.info("answered %s of round %s after %.2f s", meta.message_type, meta.group_id, time.monotonic() - began)


def failure(message: MessageProto) -> list[bytes]:
    """The answer of a site whose worker died."""
    from chase.flower.packing import pack_message

    error = Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "the process that computes at the site has ended")
    return pack_message(Message(error, reply_to=message_from_proto(message)))


def stop(number: int, frame: FrameType | None) -> None:
    """SIGTERM ends the node as Ctrl-C does."""
    raise KeyboardInterrupt


def main(arguments: list[str] | None = None) -> int:
    """``python -m chase.flower.node HOME --server HOST:PORT [--ca FILE --key FILE]``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("home", type=Path)
    parser.add_argument("--server", required=True)
    parser.add_argument("--ca", type=Path)
    parser.add_argument("--key", type=Path)
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", force=True)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    signal.signal(signal.SIGTERM, stop)
    try:
        SiteNode(Fleet(given.server, given.ca, given.key), given.home).run()
    except KeyboardInterrupt:
        return 0
    except ChaseError as error:
        LOG.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
