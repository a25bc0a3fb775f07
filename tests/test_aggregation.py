from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from support import blobs, small_settings, tiny_net

from chase.core.errors import SettingsError, UpdateError
from chase.core.messages import ClientUpdate
from chase.learning.optimisers import FlatSGD
from chase.learning.training import TrainingOptions, TrainingTask, train
from chase.server.aggregation import (
    BLOCK,
    SERVERS,
    RunningSum,
    ServerPlan,
    average,
    block_sum,
    client_weights,
    fed_adam,
    fed_avg,
    fed_avg_m,
    in_blocks,
)
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


def some(*values: float, count: int = 0) -> dict[str, np.ndarray]:
    return {"w": np.array(values, dtype=np.float32), "n": np.array(count, dtype=np.int64)}


def test_average_worked_by_hand() -> None:
    mean = average([(0, some(1.0, 10.0), 1.0), (7, some(5.0, -2.0), 3.0)])
    assert mean["w"].tolist() == [(1 * 1 + 3 * 5) / 4, (1 * 10 + 3 * -2) / 4] == [4.0, 1.0]
    assert mean["w"].dtype == np.float32


def test_counters_take_the_largest_value() -> None:
    parts = [(0, some(0, count=3), 9.0), (1, some(0, count=8), 1.0), (BLOCK, some(0, count=5), 5.0)]
    assert average(parts)["n"] == 8
    assert average(parts)["n"].dtype == np.int64


def test_average_is_summed_in_double_precision() -> None:
    # In float32, 2**24 + 1 = 2**24: the ones would be lost.
    parts = [(0, some(2.0**24), 1.0)] + [(client, some(1.0), 1.0) for client in (1, 2, 3)]
    assert average(parts)["w"][0] == np.float32((2.0**24 + 3) / 4)


def test_average_of_nothing_or_of_no_weight_is_refused() -> None:
    with pytest.raises(UpdateError, match="no updates"):
        average([])
    with pytest.raises(UpdateError, match="weight zero"):
        average([(0, some(1.0), 0.0)])


def uneven_parts(clients: int = 3 * BLOCK + 5) -> list[tuple[int, dict[str, np.ndarray], float]]:
    draw = np.random.default_rng(4)
    scale = 10.0 ** draw.integers(-12, 12, (clients, 8))
    values = draw.normal(size=(clients, 8)) * scale
    return [(c, some(*values[c], count=c), float(draw.integers(1, 90))) for c in range(clients)]


def test_blocks_in_any_order_of_arrival_give_the_same_bits() -> None:
    parts = uneven_parts()
    blocks = [block_sum(at // BLOCK, parts[at : at + BLOCK]) for at in range(0, len(parts), BLOCK)]
    want = average(parts)["w"].tobytes()
    assert average(parts[::-1])["w"].tobytes() == want
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]):
        for expected in ((), range(4), range(6)):
            running = RunningSum(expected)
            for number in order:
                running.add(blocks[number])
            assert running.mean(parts[0][1])["w"].tobytes() == want


def test_a_sum_is_forgotten_once_all_before_it_are_there() -> None:
    parts = uneven_parts()
    blocks = [block_sum(at // BLOCK, parts[at : at + BLOCK]) for at in range(0, len(parts), BLOCK)]
    running = RunningSum(range(4))
    running.add(blocks[1])
    assert len(running._early) == 1
    running.skip(0)
    assert len(running._early) == 0
    with pytest.raises(UpdateError, match="arrived twice"):
        running.add(blocks[1])
    assert running.total().weight == sum(weight for c, _, weight in parts if BLOCK <= c < 2 * BLOCK)


def test_the_order_within_a_block_is_by_id_and_blocks_are_summed_apart() -> None:
    """1e30 and -1e30 cancel only beside each other: in one block, not across two."""
    parts = [(0, some(1e30), 1.0), (2, some(3.0), 1.0), (1, some(-1e30), 1.0)]
    assert average(parts)["w"][0] == 1.0
    far = [(0, some(1e30), 1.0), (1, some(3.0), 1.0), (BLOCK, some(-1e30), 1.0)]
    assert average(far, range(BLOCK + 1))["w"][0] == 0.0


def test_blocks_hold_so_many_of_the_clients_of_a_round_however_far_apart_their_ids_are() -> None:
    clients = range(5, 100 * BLOCK, 50)
    numbers = in_blocks(reversed(clients))
    assert [numbers[client] for client in clients] == [place // BLOCK for place in range(len(clients))]
    assert in_blocks(range(3 * BLOCK)) == {client: client // BLOCK for client in range(3 * BLOCK)}


def test_weights_of_clients() -> None:
    counts = {4: 10, 0: 1, 2: 5, 3: 0}
    assert client_weights(counts, "labelled", 0, 1) == {0: 1.0, 2: 5.0, 4: 10.0}
    assert client_weights(counts, "equal", 0, 1) == {0: 1.0, 2: 1.0, 4: 1.0}
    seen = [client_weights(counts, "shuffled", 0, round) for round in range(1, 40)]
    assert all(sorted(weights.values()) == [1.0, 5.0, 10.0] for weights in seen)
    assert all(list(weights) == [0, 2, 4] for weights in seen)
    assert {tuple(weights.values()) for weights in seen} == set(itertools.permutations((1.0, 5.0, 10.0)))
    assert client_weights(counts, "shuffled", 0, 7) == client_weights(counts, "shuffled", 0, 7)
