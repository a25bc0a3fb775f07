"""The alignment loss (the paper's section on calibrating decision boundaries).

With d_loc and d_glo the cosine between the student's output and each teacher's, the loss of a
sample aligned to teacher * is -log(exp(d*/tau) / (exp(d_loc/tau) + exp(d_glo/tau))), which is
softplus((d_other - d*)/tau). Both teachers are constant within a turn, so their difference is
prepared once as a *direction* per sample and a step costs one dot product a sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

AlignOn = Literal["logits", "features"]
"""What is compared: the output before the softmax, or what the last layer sees (a projection, where there is one)."""


@dataclass(frozen=True)
class Alignment:
    """What alignment needs of the watched samples, prepared once per turn."""

    directions: Tensor
    """(watched, outputs): (other teacher - own teacher) / tau, both of unit length."""
    aligned: Tensor
    """(watched,): 1.0 where a sample takes part in this mode, else 0.0."""
    on: AlignOn = "logits"


def unit(f: Tensor) -> Tensor:
    """Rows scaled to length one; a zero row stays zero."""
    return F.normalize(f, dim=1)


def easy_samples(last_ev: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Easy: last measured EV at most the mean over the watched samples."""
    if last_ev.size == 0:
        return np.zeros(0, dtype=np.bool_)
    easy: NDArray[np.bool_] = last_ev <= last_ev.mean()
    return easy


def prepare_alignment(
    local_outputs: Tensor,
    global_outputs: Tensor,
    easy: NDArray[np.bool_],
    mode: str,
    tau: float,
    on: AlignOn = "logits",
) -> Alignment:
    """Directions for outputs (watched, outputs) of both teachers.

    Modes: ``both``; ``local`` aligns only easy samples, to the previous local model; ``global`` only hard
    ones, to the global model; ``all-global`` every sample to the global model.
    """
    is_easy = torch.from_numpy(easy)
    if mode == "all-global":
        is_easy = torch.zeros_like(is_easy)
    takes_part = {"local": is_easy, "global": ~is_easy}.get(mode, torch.ones_like(is_easy))
    towards_global = (unit(global_outputs) - unit(local_outputs)) / tau
    directions = torch.where(is_easy[:, None], towards_global, -towards_global)
    return Alignment(directions, takes_part.float(), on)


def alignment_loss(outputs: Tensor, directions: Tensor, aligned: Tensor) -> Tensor:
    """Mean over the aligned samples of softplus(cos difference / tau); 0 when none is aligned.

    outputs, directions (batch, outputs); aligned (batch,).
    """
    each = F.softplus((unit(outputs) * directions).sum(dim=1))
    return (each * aligned).sum() / aligned.sum().clamp(min=1.0)
