"""Before round 1: does a network or strategy of one's own give what the other needs?

The strategy chooses once among a few samples of one client, with the first weights, and nothing is kept. What would
fail in the second round, hours later, fails here. Built-in parts fit each other and are not rehearsed.
"""

from __future__ import annotations

from chase.acquisition.catalog import METHODS
from chase.client.build import usual_behaviours
from chase.client.choose import checked, pool_view
from chase.client.context import ClientContext
from chase.core.errors import ChaseError, SettingsError
from chase.core.messages import RoundOrder
from chase.core.randomness import rng
from chase.models.catalog import NETS
from chase.models.net import set_weights, with_embedding
from chase.server.server import Start
from chase.settings import Settings
from chase.simulation.world import World

FEW = 8
"""Candidates of the rehearsal."""


def rehearse(world: World, start: Start) -> None:
    """Let the strategy choose once; a refusal says what is missing."""
    settings = world.settings
    if settings.learner != "network" or (settings.net in NETS and settings.strategy in METHODS):
        return
    net = world.net()
    set_weights(net, start.weights)
    if settings.aligns and settings.align_on == "features":
        with_embedding(net)
    client = max(range(settings.clients), key=lambda c: world.parts[c].size)
    state = world.start(client)
    ids = state.pools.unlabeled[:FEW]
    if not ids.size:
        return
    context = ClientContext(client, settings, world.samples, net, world.num_classes, usual_behaviours(settings)[client])
    view = pool_view(context, state, RoundOrder("", 1, settings.seed, start.weights, extras=start.extras), ids)
    try:
        chosen = settings.acquisition.select(view, 2, rng(settings.seed, "rehearsal"))
        checked(chosen, view, 2, settings.strategy)
    except ChaseError as error:
        raise SettingsError(f"{tried(settings, ids.size)}: {error}") from None
    except Exception as error:
        raise SettingsError(f"{tried(settings, ids.size)} ({type(error).__name__}: {error})") from error


def tried(settings: Settings, samples: int) -> str:
    """The beginning of a refusal."""
    return (
        f"strategy '{settings.strategy}' was tried on {samples} samples before round 1 and failed with network "
        f"'{settings.net}'"
    )
