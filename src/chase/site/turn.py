"""What a site does for the server: shake hands, take a turn, score a model on its held-out part.

The turn itself is ``chase.client.turn.Client``, the same shell that every engine calls; the site's home is its store.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from chase.annotation.behaviour import Behaviour
from chase.client.build import behaviour_of, build_client, build_net, usual_behaviours
from chase.client.contribute import RECEIVED
from chase.client.spec import net_spec
from chase.client.turn import Client
from chase.core.errors import AheadError, ContractError
from chase.core.messages import ClientId, ClientUpdate, RoundOrder
from chase.core.weights import Weights
from chase.home.store import ClientStore
from chase.learning.inference import logits
from chase.models.catalog import NetSpec
from chase.models.net import set_weights
from chase.settings import Settings
from chase.site.contents import damaged, damaged_count
from chase.site.contract import Contract, contract_of, differences
from chase.site.place import Site
from chase.site.sums import check_in_step, out_of_step

LEAST_LABELS = 10
"""Closed-form: sums over fewer samples would tell too much of each (``min_labels`` may say otherwise)."""
METRICS = frozenset(
    {"train_loss", "ev_sum", "ev_count", "labels", "inferences", "observed_inferences", "inferred_samples"}
    | {"turn"}
    | {"second_opinions", "second_opinions_waiting"}
    | {"picks", "ranked_picks", "chance_picks", "observed_ev_sum", "observed_ev_count"}
    | {f"pool_{name}" for name in ("labeled", "unlabeled", "asked", "dormant", "set_aside")}
)
"""The metrics that go up; besides them only ``seconds_...`` of each phase."""


def agreed_metrics(update: ClientUpdate) -> dict[str, float]:
    """Of an update's metrics, those that were agreed on."""
    return {k: float(v) for k, v in update.metrics.items() if k in METRICS or k.startswith("seconds_")}


def turns(site: Site) -> int:
    """Turns that the site has taken."""
    return ClientStore(site.home, site.start()).load().turn


def sizes(site: Site) -> tuple[int, int, int]:
    """Samples that the site may train on, samples that it scores models with, and its turns so far."""
    state, held = ClientStore(site.home, site.start()).load(), site.held_out()
    return int(state.ids.size), 0 if held is None else int(held.ids.size), state.turn


def own_behaviour(site: Site, settings: Settings, number: ClientId) -> Behaviour:
    """How this site labels: its own say first, then the settings."""
    usual = usual_behaviours(settings)[number % settings.clients]
    budget, period = site.card.budget, site.card.period
    own = Behaviour(usual.budget if budget is None else budget, usual.period if period is None else period)
    return behaviour_of(settings, own, int(site.start().pools.unlabeled.size))


def own_settings(site: Site, settings: Settings) -> Settings:
    """The settings that the server sent, with what the site decides itself: its device, and how few labels it sums."""
    return settings.model_copy(update={"device": site.card.device, "min_labels": settings.min_labels or LEAST_LABELS})


def objections(site: Site, settings: Settings, offered: Contract) -> list[str]:
    """The points on which the site does not agree with the server."""
    found = differences(offered, contract_of(settings, site.samples(), site.classes))
    spoiled = damaged(site)
    if spoiled:
        found.append(f"{damaged_count(spoiled)} damaged at the site: `chase site health` there names them")
    return found


def check_contract(site: Site, settings: Settings, digest: str) -> None:
    """Refuse an order that was made under another contract than the site's own."""
    own = contract_of(settings, site.samples(), site.classes)
    if own.digest() != digest:
        raise ContractError("classes, preprocessing, network or format are not as they were agreed on")


def client_of(site: Site, settings: Settings, number: ClientId, order: str = "") -> Client:
    """The site as a client; ``order`` is the fingerprint of what it is to answer."""
    own, samples, classes = own_settings(site, settings), site.samples(), len(site.classes)
    net, store = build_net(own, samples, classes), ClientStore(site.home, site.start(), order)
    annotator = site.truth() if site.card.annotator == "simulated" else store
    return build_client(number, own, samples, net, classes, own_behaviour(site, settings, number), annotator, store)


def take_turn(
    site: Site, settings: Settings, number: ClientId, order: RoundOrder, recover: bool = False
) -> ClientUpdate:
    """The answer to an order; a repeated one is answered from what was committed, with another content it is refused.

    ``recover``: the site was restored from an older copy; the answers that its inbox has are all read once more.
    """
    torch.set_num_threads(1)
    with site.locked():
        check_in_step(site, order, number)
        if recover:
            site.home.inbox.set_taken(0)
        try:
            update = client_of(site, settings, number, order.fingerprint()).take_turn(order).update
        except AheadError as error:
            if error.done == error.asked and RECEIVED in order.extras:  # the server then begins its sums anew
                raise out_of_step(order, number) from None
            raise
        return replace(update, metrics={**agreed_metrics(update), "turn": float(turns(site))})


def spec_of(site: Site, settings: Settings) -> NetSpec:
    """How to build the model at this site."""
    return net_spec(own_settings(site, settings), site.samples(), len(site.classes))


def tally(site: Site, settings: Settings, weights: Weights) -> tuple[int, int]:
    """How many of the held-out samples the model gets right, and how many there are."""
    torch.set_num_threads(1)
    held = site.holdout()
    if held is None:
        return 0, 0
    samples, labels = held
    net = build_net(own_settings(site, settings), samples, len(site.classes))
    set_weights(net, weights)
    predicted = logits(net, samples, torch.arange(len(samples))).argmax(dim=1).numpy()
    return int((predicted == labels).sum()), int(labels.size)
