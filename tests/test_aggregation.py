from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from support import blobs, small_settings, tiny_net

from chase.core.errors import SettingsError
from chase.core.messages import ClientUpdate
from chase.learning.training import FlatSGD, TrainingOptions, TrainingTask, train
from chase.server.aggregation import SERVERS, ServerPlan, fed_adam, fed_avg, fed_avg_m
from chase.server.server import Server


def one(value: float) -> dict[str, np.ndarray]:
    return {"w": np.array([value], dtype=np.float32)}


def test_fedavg_is_the_mean() -> None:
    assert fed_avg(one(1), one(3), {}, ServerPlan()) == ({"w": np.array([3.0])}, {})


def test_fedavgm_carries_the_change_on() -> None:
    """From 1 to a mean of 2: v = 1, w = 2. Then no change: v = 0.9, w = 2.9; v = 0.81 * ..."""
    plan = ServerPlan(lr=1.0, momentum=0.9)
    weights, state = fed_avg_m(one(1), one(2), {}, plan)
    assert weights["w"].tolist() == [2.0]
    weights, state = fed_avg_m(weights, weights, state, plan)
    assert weights["w"] == pytest.approx([2.9])
    half, _ = fed_avg_m(one(1), one(2), {}, ServerPlan(lr=0.5, momentum=0.9))
    assert half["w"] == pytest.approx([1.5])


def test_fedadam_scales_by_the_root_of_the_second_moment() -> None:
    """Change 2: m = 0.1 * 2, u = 0.01 * 4, step = lr * 0.2 / (0.2 + tau)."""
    plan = ServerPlan(lr=0.5, momentum=0.9, beta2=0.99, tau=0.05)
    weights, state = fed_adam(one(1), one(3), {}, plan)
    assert weights["w"] == pytest.approx([1 + 0.5 * 0.2 / 0.25])
    again, _ = fed_adam(one(1), one(3), state, plan)
    m, u = 0.9 * 0.2 + 0.2, 0.99 * 0.04 + 0.04
    assert again["w"] == pytest.approx([1 + 0.5 * m / (math.sqrt(u) + 0.05)])


@pytest.mark.parametrize("kind", sorted(SERVERS))
def test_batch_norm_statistics_and_counters_take_the_mean(kind: str) -> None:
    def norm(mean: float, count: int) -> dict[str, np.ndarray]:
        return {
            "bn.running_mean": np.full(2, mean, np.float32),
            "bn.num_batches_tracked": np.array(count),
            "bn.weight": one(mean)["w"],
        }

    start, mean = norm(0, 3), norm(1, 9)
    weights, _ = SERVERS[kind].rule(start, mean, {}, ServerPlan(lr=0.1))
    assert weights["bn.running_mean"].tolist() == [1.0, 1.0]
    assert weights["bn.num_batches_tracked"] == 9
    assert all(weights[name].dtype == start[name].dtype for name in start)


def test_the_server_rule_goes_on_exactly_after_a_restart() -> None:
    settings = small_settings(server="fedadam", clients=1)
    server, straight = (Server("run", settings, one(0)) for _ in range(2))

    def round(of: Server, number: int) -> None:
        orders = of.orders(number)
        moved = {"w": of.weights["w"] + np.float32(1 + number)}
        of.aggregate(orders, [ClientUpdate(0, number, moved, 3, {})])

    for number in (1, 2, 3):
        round(straight, number)
    for number in (1, 2, 3):
        round(server, number)
        fresh = Server("run", settings, one(0))
        fresh.restore(server.to_arrays())
        server = fresh
    assert server.weights["w"].tobytes() == straight.weights["w"].tobytes()
    forgetful = Server("run", settings, straight.weights)
    round(forgetful, 4)
    round(straight, 4)
    assert forgetful.weights["w"] != straight.weights["w"]


def test_usual_learning_rates_and_unknown_servers() -> None:
    assert small_settings().server_lr == 1.0
    assert small_settings(server="fedadam").server_lr == 0.01
    assert small_settings(server="fedadam", server_lr=0.3).server_lr == 0.3
    with pytest.raises(SettingsError, match="did you mean 'fedadam'"):
        small_settings(server="fedadm")


def test_the_proximal_gradient_is_that_of_the_written_term() -> None:
    """prox/2 ||w - w0||^2 by autograd and torch's SGD against FlatSGD, three steps."""
    start = torch.tensor([1.0, -2.0])
    ours, theirs = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    flat = FlatSGD([ours], lr=0.1, momentum=0.5, weight_decay=0.01, prox=0.7)
    sgd = torch.optim.SGD([theirs], lr=0.1, momentum=0.5, weight_decay=0.01)
    for _ in range(3):
        (ours**3).sum().backward()
        flat.step()
        sgd.zero_grad()
        ((theirs**3).sum() + 0.7 / 2 * ((theirs - start) ** 2).sum()).backward()
        sgd.step()
    assert torch.allclose(ours, theirs, atol=1e-6)


def test_a_strong_proximal_term_keeps_the_model_near_its_start() -> None:
    samples, labels = blobs(30)
    job = TrainingTask(samples, torch.arange(30), torch.from_numpy(labels), torch.arange(0), None, False, 0, ("t",))

    def moved(prox: float) -> float:
        net = tiny_net()
        before = torch.cat([p.detach().clone().flatten() for p in net.parameters()])
        train(net, job, TrainingOptions(5, 10, 0.02, 0.5, 0.0, 0.0, prox=prox))
        return float((torch.cat([p.detach().flatten() for p in net.parameters()]) - before).norm())

    assert moved(10.0) < 0.5 * moved(0.0)
