"""Runs the server's side of a Flower run with the chase that is installed here, never with code from the run itself.

    python -m chase.flower.executor FEDERATION

It takes the place of Flower's SuperExec: takes a task with the executor's secret, holds the rounds in this process,
and waits for the next. What the rounds print is this process's own log.
"""

from __future__ import annotations

import logging
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import httpx
from flwr.common.constant import SubStatus
from flwr.proto.runtime_pb2 import AcquireTaskRequest, PullTaskInputRequest, PushTaskOutputRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.protobuf.client import ProtobufClientInterceptor
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity

from chase.core.errors import ChaseError
from chase.federation.ops import launch
from chase.federation.rules import FederationDirectory
from chase.flower.server_app import serve

POLL = 0.5
"""Seconds between two looks for a run."""
ACQUIRE = frozenset({"/flwr.proto.Runtime/AcquireTask"})
LOG = logging.getLogger("chase.executor")


class Executor:
    """Takes tasks of one federation's SuperLink."""

    def __init__(self, federation: FederationDirectory) -> None:
        self._federation = federation

    def _client(self, *extra: ProtobufClientInterceptor) -> RuntimeHttpClient:
        federation = self._federation
        host, port = federation.address
        more: Sequence[ProtobufClientInterceptor] = (RuntimeVersionHttpInterceptor("flwr-serverapp"), *extra)
        return RuntimeHttpClient.from_server_address(
            f"{host}:{port}",
            not federation.secure,
            launch.ca(federation).read_bytes() if federation.secure else None,
            more,
            retry_invoker=make_simple_http_retry_invoker(),
        )

    def run(self) -> None:
        """Take one task after another."""
        secret = launch.executor_secret(self._federation).read_bytes()
        client = self._client(SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=ACQUIRE))
        while True:
            found = client.AcquireTask(AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP]))
            if found.HasField("task") and found.token:
                self._task(found.token)
            time.sleep(POLL)

    def _task(self, token: str) -> None:
        client = self._client(RuntimeTokenHttpInterceptor(token))
        heart = HeartbeatSender(make_task_heartbeat_fn_http(client))
        heart.start()
        status, details = SubStatus.FAILED, ""
        try:
            given = client.PullTaskInput(PullTaskInputRequest())
            run = int(given.run.run_id)
            TaskIdentity.task_id, TaskIdentity.run_id = int(given.task_id), run
            TaskIdentity.node_id = int(given.context.node_id)
            LOG.info("run %s begins", run)
            serve(self._federation, client, run)
            status = SubStatus.COMPLETED
        except ChaseError as error:
            details = str(error)
            LOG.error("%s", error)
        except Exception as error:  # the executor outlives whatever a run does
            details = type(error).__name__
            LOG.error("the run failed:\n%s", traceback.format_exc())
        finally:
            heart.stop()
            try:
                client.PushTaskOutput(PushTaskOutputRequest(sub_status=status, details=details))
            except httpx.HTTPError as error:
                LOG.error("the SuperLink was not told how the run ended: %s", error)
            client.close()


def stop(number: int, frame: FrameType | None) -> None:
    """SIGTERM ends the executor as Ctrl-C does."""
    raise KeyboardInterrupt


def main(arguments: list[str]) -> int:
    """Run until a signal comes."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", force=True)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    signal.signal(signal.SIGTERM, stop)
    try:
        Executor(FederationDirectory(Path(arguments[0]))).run()
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
