"""The one place that makes networks and clients: every engine and every real site comes here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from chase.annotation.annotator import Annotator, Desk, has_panel
from chase.annotation.behaviour import Behaviour, behaviours, per_cycle
from chase.annotation.oracle import Oracle
from chase.annotation.team import SimulatedTeam, team_of
from chase.client.context import ClientContext
from chase.client.spec import net_spec
from chase.client.turn import Client, StateStore
from chase.closed_form.model import build_model
from chase.core import plugins
from chase.core.errors import SettingsError
from chase.core.messages import ClientId
from chase.core.pools import SampleIds
from chase.data.resident import Samples
from chase.learning.native.choice import Kernels, chosen
from chase.learning.native.kernel import NoKernel
from chase.settings import ANNOTATORS, Settings


@dataclass(frozen=True)
class Truth:
    """What a simulated annotator knows: the class number of each sample, -1 where nobody knows."""

    ids: SampleIds
    labels: NDArray[np.int64]


def build_net(settings: Settings, samples: Samples, num_classes: int) -> nn.Module:
    """The network that the settings name for these samples, with its initial weights, on the device they name."""
    check_device(settings.device)
    net = build_model(net_spec(settings, samples, num_classes), settings.seed)
    net.kernels = kernels_of(settings)  # type: ignore[assignment]
    return net.to(settings.device)


def kernels_of(settings: Settings) -> Kernels:
    """What computes the steps of a small network on this machine; refused where it is asked for and is not there."""
    try:
        return chosen(settings.kernels)
    except NoKernel as error:
        raise SettingsError(
            f"kernels = '{settings.kernels}', but the compiled kernel {error}; or set kernels=auto for a new run"
        ) from None


def build_client(
    number: ClientId,
    settings: Settings,
    samples: Samples,
    net: nn.Module,
    num_classes: int,
    behaviour: Behaviour,
    annotator: Annotator | Truth,
    store: StateStore,
) -> Client:
    """A client. Its annotator is a person's inbox, whose questions then show the model's guess, or the truth."""
    for_people = not isinstance(annotator, Truth)
    context = ClientContext(number, settings, samples, net, num_classes, behaviour, for_people)
    if isinstance(annotator, Truth):
        annotator = simulated_annotator(number, settings, num_classes, annotator)
    return Client(context, annotator, store)


def simulated_annotator(number: ClientId, settings: Settings, num_classes: int, truth: Truth) -> Annotator:
    """Who answers from the truth: the oracle, a team, or an annotator of one's own, a new one for each client."""
    if settings.annotator == "team":
        skills = (settings.people, settings.skill, settings.skill_spread, settings.confusion, settings.fatigue)
        people, delay = team_of(number, *skills), settings.answer_delay
        return SimulatedTeam(truth.ids, truth.labels, num_classes, people, seed=settings.seed, delay=delay)
    if settings.annotator in ANNOTATORS:
        wrong, delay = settings.wrong_labels, settings.answer_delay
        return Oracle(truth.ids, truth.labels, num_classes, seed=settings.seed, wrong=wrong, delay=delay)
    known = dict(zip(truth.ids.tolist(), truth.labels.tolist(), strict=True))
    make = plugins.find("annotator", settings.annotator, ANNOTATORS)
    made: Annotator = make(Desk(number, known, num_classes, settings.seed))
    missing = [name for name in ("ask", "withdraw", "answers") if not callable(getattr(made, name, None))]
    if missing:
        raise SettingsError(f"annotator '{settings.annotator}' has no method {' and no method '.join(missing)}")
    if settings.second_opinions and not has_panel(made):
        raise SettingsError(
            f"second_opinions = {settings.second_opinions}, but annotator '{settings.annotator}' has no method panel, "
            "which says who answered what: add it, or leave second_opinions out"
        )
    return made


def usual_behaviours(settings: Settings) -> list[Behaviour]:
    """How each client labels by the settings, cycles aside."""
    return behaviours(settings.behaviour, settings.clients, settings.seed, settings.budget, settings.period)


def behaviour_of(settings: Settings, usual: Behaviour, unlabeled: int) -> Behaviour:
    """The usual behaviour; in cycles a share of the original unlabelled pool, asked for once per cycle."""
    if settings.form == "cycles" and settings.budget:
        return per_cycle(unlabeled, settings.cycle_rounds, settings.cycle_budget)
    return usual


def check_device(device: str) -> None:
    """Refuse a device that torch does not know or does not have."""
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise SettingsError(f"device = '{device}' cannot be used on this machine ({reason}): use device=cpu") from None
