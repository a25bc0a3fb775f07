"""Which kernels compute a run is decided when it begins, written down and kept: by resumes, comparisons and studies."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from compiled_kernel import kernel_with

from chase.client.build import kernels_of
from chase.closed_form.feature_map import InputSpec
from chase.closed_form.model import ClosedFormNet, FeatureSpec, build_model
from chase.core.errors import RunDirectoryError, SettingsError
from chase.core.weights import digest, read
from chase.data.resident import Samples
from chase.learning.fused import FusedNet, fused_for
from chase.learning.native import kernel as kernel_room
from chase.learning.native.choice import AUTOGRAD_ONLY, here
from chase.learning.native.kernel import AVX2, NoKernel
from chase.models.catalog import NETS, NetSpec, build, takes
from chase.run.comparison import PLAN, open_arm, plan_arms, read_arms, write_arms
from chase.run.experiment import Experiment
from chase.run.record import Record
from chase.settings import Settings, load
from chase.simulation.cluster import ClusterError, check_same, versions
from chase.studies.catalog import find_study
from chase.studies.job import open_job, read_jobs
from chase.studies.plan import Options, plan, read_plan, write_plan

SMALL: dict[str, Any] = {"clients": 3, "rounds": 2, "local_epochs": 2, "seed": 7, "engine": "inprocess"}


def settings(**changes: Any) -> Settings:
    return load("digits", {**SMALL, "strategy": "random", **changes})


def weights(path: Path, round: int) -> str:
    return digest(read(path / "checkpoint" / f"server-{round:06d}.safetensors"))


def lose_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_room, "_looked_up", lambda: NoKernel("was not built: install chase again"))


def said(path: Path) -> Any:
    return json.loads((path / "environment.json").read_text())["kernels"]


def forget(path: Path, *keys: str) -> None:
    """Make a file one of an earlier version, which does not say what computed."""
    body = json.loads(path.read_text())
    for key in keys or ("kernels", "own_forms"):
        del body[key]
    path.write_text(json.dumps(body))


def test_a_run_says_what_computes_it_and_its_settings_stay_as_given(tmp_path: Path) -> None:
    kernel_with(AVX2)
    Experiment.begin(settings(), tmp_path / "auto").run()
    Experiment.begin(settings(kernels="fused"), tmp_path / "fused").run()
    assert [said(tmp_path / name) for name in ("auto", "fused")] == ["compiled", "fused"]
    assert Record.open(tmp_path / "auto").settings.kernels == "auto"
    assert weights(tmp_path / "auto", 2) != weights(tmp_path / "fused", 2)


def test_a_run_of_an_earlier_version_goes_on_with_the_fused_steps(tmp_path: Path) -> None:
    kernel_with(AVX2)
    Experiment.begin(settings(kernels="fused", rounds=4), tmp_path / "whole").run()
    early = tmp_path / "early"
    Experiment.begin(settings(), early, "fused").run()
    forget(early / "environment.json")
    Experiment.resume(early, {"rounds": 4}).run()
    assert weights(early, 4) == weights(tmp_path / "whole", 4)


def test_a_run_goes_on_with_its_own_kernel_or_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel_with(AVX2)
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    Experiment.begin(settings(rounds=4), whole).run()
    Experiment.begin(settings(), parted).run()
    with monkeypatch.context() as patch:
        lose_kernel(patch)
        before = (parted / "settings.toml").read_bytes()
        with pytest.raises(
            RunDirectoryError, match=r"was begun with the compiled kernel, which was not built.*--set kernels=fused"
        ):
            Experiment.resume(parted, {"rounds": 4})
        assert (parted / "settings.toml").read_bytes() == before
        Experiment.begin(settings(), tmp_path / "without").run()
        assert said(tmp_path / "without") == "fused"
    Experiment.resume(parted, {"rounds": 4}).run()
    assert weights(parted, 4) == weights(whole, 4)
    Experiment.resume(tmp_path / "without", {"rounds": 3}).run()
    assert said(tmp_path / "without") == "fused"


def test_a_kernel_that_is_not_there_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_kernel(monkeypatch)
    with pytest.raises(SettingsError, match="kernels = 'compiled', but the compiled kernel was not built"):
        Experiment.begin(settings(kernels="compiled"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert kernels_of(settings()) == "fused"  # a site of a federation computes with what it has
    assert here() == "auto = fused, because the compiled kernel was not built: install chase again"


@pytest.mark.parametrize("changes", [{"learner": "closed-form", "strategy": "recommended"}, {"net": "resnet-gn"}])
def test_what_no_kernel_computes_goes_on_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str]
) -> None:
    """The closed-form learner and networks without hand-written steps; also where a run says otherwise."""
    kernel_with(AVX2)
    chosen = settings(**{"rounds": 1, "clients": 2, **changes})
    for name in ("new", "earlier"):
        Experiment.begin(chosen, tmp_path / name).run()
        assert said(tmp_path / name) == "fused"
    around = tmp_path / "earlier" / "environment.json"
    around.write_text(json.dumps({**json.loads(around.read_text()), "kernels": "compiled"}))
    lose_kernel(monkeypatch)
    for name in ("new", "earlier"):
        Experiment.resume(tmp_path / name, {"rounds": 2}).run()
    assert weights(tmp_path / "new", 2) == weights(tmp_path / "earlier", 2)


@pytest.mark.parametrize("name", list(NETS))
def test_networks_without_hand_written_steps_are_known(name: str) -> None:
    kernel_with(AVX2)
    shape = {"texts": (20,), "tables or vectors": (5,), "images": (1, 28, 28)}[takes(name)]
    net = build(NetSpec(name, shape, 3, 0.5, 50 if takes(name) == "texts" else 0), 0)
    assert (fused_for(net) is None) == (name in AUTOGRAD_ONLY)


def test_features_of_a_network_are_computed_alike_on_every_machine() -> None:
    """They are kept in a cache that does not know the kernel, and a closed-form run does not say which it has."""
    kernel_with(AVX2)
    inputs = InputSpec.of(Samples(torch.zeros(2, 1, 28, 28, dtype=torch.uint8)))
    about = FeatureSpec("net", inputs, net="mnist-cnn")
    net = build_model(NetSpec("closed-form", (1, 28, 28), 3, 0.0, features=about.to_text()), 0)
    assert isinstance(net, ClosedFormNet)
    assert net.inner is not None
    assert isinstance(fused_for(net.inner), FusedNet)


def test_a_comparison_that_begins_with_the_closed_form_keeps_the_kernel_of_its_networks(tmp_path: Path) -> None:
    kernel_with(AVX2)
    values = {"data": "digits", **SMALL, "rounds": 1}
    for methods in (["recommended", "random"], ["recommended", "random", "entropy"]):
        found = [arm.kernels for arm in write_arms(tmp_path, plan_arms(values, methods, [0]))]
        assert found == ["fused", "compiled", "compiled"][: len(methods)]
    assert [arm.kernels for arm in read_arms(tmp_path)] == ["fused", "compiled", "compiled"]
    assert read_jobs(tmp_path / PLAN).kernels == "compiled"


def test_all_runs_of_a_comparison_have_one_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel_with(AVX2)
    values = {"data": "digits", **SMALL, "rounds": 1}
    for name, wanted in (("early", "fused"), ("now", "compiled")):
        out = tmp_path / name
        first, *_ = write_arms(out, plan_arms(values, ["random"], [0]))
        assert first.kernels == "compiled"
        if name == "early":
            forget(out / PLAN)
        write_arms(out, plan_arms(values, ["random", "entropy"], [0]))
        assert {arm.kernels for arm in read_arms(out)} == {wanted}
        arm = read_arms(out)[0]
        begun = open_arm(out, arm)
        assert begun is not None
        begun.run()
        assert said(out / arm.name) == wanted
    lose_kernel(monkeypatch)
    with pytest.raises(SettingsError, match="the compiled kernel was not built"):
        open_arm(tmp_path / "now", read_arms(tmp_path / "now")[1])
    assert open_arm(tmp_path / "early", read_arms(tmp_path / "early")[1]) is not None


def test_all_studies_of_a_directory_have_one_kernel(tmp_path: Path) -> None:
    """They share runs: a study that is added later is computed as the first one was."""
    kernel_with(AVX2)
    options = Options(("digits",), rounds=1, seeds=1)
    ablation, why = (plan(find_study(name), options) for name in ("ablation", "beta"))
    first = write_plan(tmp_path / "now", "ablation", ablation)
    assert first.kernels == read_plan(first.path).kernels == "compiled"
    early = write_plan(tmp_path / "early", "ablation", ablation)
    forget(early.path)
    added = write_plan(tmp_path / "early", "beta", why)
    assert read_plan(early.path).kernels == added.kernels == "fused"
    jobs = read_jobs(added.path)
    begun = open_job(jobs.directory, jobs.jobs[0], jobs.kernels)
    assert begun is not None
    assert said(begun.record.path) == "fused"
    assert begun.world().settings.kernels == "fused"


def test_a_node_without_the_kernel_of_a_run_is_refused() -> None:
    node = {**versions(), "kernels": "fused"}
    with pytest.raises(ClusterError, match=r"node 10\.0\.0\.5 has no compiled kernel.*install chase there with a C"):
        check_same("10.0.0.5", node, "compiled")
    check_same("10.0.0.5", node, "fused")


OWN = """
from torch import nn


def convolutions(shape, classes, dropout):
    return nn.Sequential(
        *(nn.Conv2d(1, 4, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(4, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(24, classes)),
    )


def known_before(shape, classes, dropout):
    return nn.Sequential(
        *(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(4, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(24, 10), nn.ReLU(), nn.Linear(10, classes)),
    )
"""


@pytest.fixture
def _own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "ownnets.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("ownnets", None)


@pytest.mark.usefixtures("_own")
@pytest.mark.parametrize(("net", "early"), [("convolutions", "plain"), ("known_before", "fused")])
def test_a_run_goes_on_with_the_forms_of_own_networks_that_it_began_with(tmp_path: Path, net: str, early: Any) -> None:
    """One of an earlier version does not say which: what has hand-written steps only since is left to autograd."""
    name = f"ownnets:{net}"
    for kernels in {early, "fused"}:
        Experiment.begin(settings(kernels=kernels, net=name, rounds=4), tmp_path / f"whole-{kernels}").run()
    for own_forms, wanted in ((1, early), (2, "fused")):
        path = tmp_path / f"early-{own_forms}"
        Experiment.begin(settings(net=name), path, "fused", own_forms).run()
        assert said(path) == "fused"
        if own_forms == 1:
            forget(path / "environment.json", "own_forms")
        resumed = Experiment.resume(path, {"rounds": 4})
        assert resumed.world().settings.kernels == wanted
        resumed.run()
        assert weights(path, 4) == weights(tmp_path / f"whole-{wanted}", 4)


@pytest.mark.usefixtures("_own")
def test_comparisons_and_studies_keep_the_forms_of_own_networks(tmp_path: Path) -> None:
    values = {"data": "digits", **SMALL, "rounds": 1, "net": "ownnets:convolutions", "kernels": "fused"}
    options = Options(("digits",), rounds=1, seeds=1, changes={"net": "ownnets:convolutions", "kernels": "fused"})
    jobs = plan(find_study("ablation"), options)
    for out, wanted, forms in ((tmp_path / "now", "fused", 2), (tmp_path / "early", "plain", 1)):
        write_arms(out, plan_arms(values, ["random"], [0]))
        study = write_plan(out / "study", "ablation", jobs)
        if forms == 1:
            forget(out / PLAN, "own_forms")
            forget(study.path, "own_forms")
        arm = write_arms(out, plan_arms(values, ["entropy"], [0]))[0]
        study = read_jobs(write_plan(out / "study", "ablation", jobs).path)
        assert {each.own_forms for each in read_arms(out)} == {study.own_forms} == {forms}
        for begun in (open_arm(out, arm), open_job(study.directory, study.jobs[0], study.kernels, study.own_forms)):
            assert begun is not None
            assert begun.world().settings.kernels == wanted
            assert json.loads((begun.record.path / "environment.json").read_text())["own_forms"] == forms
