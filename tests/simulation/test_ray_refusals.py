"""A cluster that cannot be used is refused before a run directory is made."""

from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from chase.core.errors import SettingsError
from chase.run.experiment import Experiment
from chase.settings import load
from chase.simulation import cluster
from chase.simulation.cluster import ClusterError


def test_an_address_that_does_not_answer_leaves_no_run_directory(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    with pytest.raises(ClusterError, match=r"the Ray cluster at 127\.0\.0\.1:1 cannot be reached"):
        Experiment.begin(load("digits", {"engine": "ray", "ray_address": "127.0.0.1:1"}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("address", ["127.0.0.1", "head", "head:", ":6379", "127.0.0.1:99999"])
def test_an_address_without_a_port_leaves_no_run_directory(tmp_path: Path, address: str) -> None:
    pytest.importorskip("ray")
    with pytest.raises(ClusterError, match=rf"the Ray cluster at {address} cannot be reached \(it is not HOST:PORT\)"):
        Experiment.begin(load("digits", {"engine": "ray", "ray_address": address}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_names_that_ray_knows_are_left_to_it() -> None:
    for name in ("", "auto", "local", "ray://head", "other://cluster"):
        cluster.check_answers(name)


def test_without_ray_no_run_directory_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SettingsError, match="Ray is not installed: pip install"):
        Experiment.begin(load("digits", {"engine": "ray"}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        (b"HTTP/1.0 400 Bad request\r\n\r\n", "something else than Ray answers there"),
        (b"", "something else than Ray answers there"),
        (None, "timed out"),
        (bytes([0, 0, 6, 4, 0, 0, 0, 0, 0]) + bytes(6), ""),
    ],
)
def test_an_address_where_something_else_answers_is_refused_at_once(
    says: bytes | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another server, one that closes, one that is silent, and one that begins as gRPC does."""
    monkeypatch.setattr(cluster, "PATIENCE", 0.3 if says is None else 10.0)
    monkeypatch.delenv("RAY_USE_TLS", raising=False)
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            line, _ = server.accept()
            with line:
                line.recv(1000)
                if says is None:
                    done.wait(10)
                else:
                    line.sendall(says)

        thread = threading.Thread(target=serve)
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        try:
            if reason:
                with pytest.raises(ClusterError, match=rf"{address} cannot be reached \({reason}\)"):
                    cluster.check_answers(address)
            else:
                cluster.check_answers(address)
        finally:
            done.set()
            thread.join()


def test_messages_of_ray_itself_do_not_reach_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    """A node that dies makes Ray print dozens of lines, in the middle of ``--json`` as well."""
    worker = SimpleNamespace(print_to_stdstream=lambda data, ignore_prefix: print(data["lines"]))
    cluster.quiet(SimpleNamespace(_private=SimpleNamespace(worker=worker)))
    worker.print_to_stdstream(
        {"lines": ["Raylet is terminated."], "pid": "raylet", "is_err": False}, ignore_prefix=False
    )
    assert capsys.readouterr().out == ""
    worker_module = pytest.importorskip("ray")._private.worker
    assert callable(worker_module.print_to_stdstream), "Ray prints through another function now: see cluster.quiet"
