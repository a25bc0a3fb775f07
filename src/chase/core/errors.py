"""The one family of errors that a user may meet.

Every message says what came, what fits and what to do. The command line turns each into one
sentence on stderr and exit code 2; anything else that escapes is a bug.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


class ChaseError(Exception):
    """Root of all errors that are the user's to mend."""


class SettingsError(ChaseError):
    """A key or value in the settings does not fit."""


class DataError(ChaseError):
    """A data set cannot be found, read or divided."""


class MissingData(DataError):
    """A data set is not on this machine and cannot be fetched; nothing is wrong with the settings."""


class PoolError(ChaseError):
    """A sample was to make a move that its pool does not allow."""


class RunDirectoryError(ChaseError):
    """A directory is not a run, or a run that cannot be resumed as asked."""


class LoggerError(ChaseError):
    """TensorBoard or MLflow cannot be written to."""


class CheckpointError(ChaseError):
    """A saved state is damaged or of a format that this version does not read."""


class AheadError(CheckpointError):
    """An order is for a round that this client has left behind: the server was restored from an older copy.

    Or it is for a round that is done here for another order: what was sent then is no answer to it.
    """

    def __init__(self, done: int, asked: int) -> None:
        why = "for another order, which had another model or other settings of the round"
        if done != asked:
            why = f"and a client cannot go back to {asked}"
        super().__init__(f"round {done} of this run is done here, {why}")
        self.done, self.asked = done, asked


class OutOfStepError(CheckpointError):
    """The server has other sums of this client than it remembers sending: one of the two was restored or set back."""

    def __init__(self, received: int | None) -> None:
        told = "none" if received is None else f"those up to round {received}"
        super().__init__(
            f"of this site's sums the server has {told}: this site was restored from an older copy, or the server was. "
            "All sites send their sums again in the next round"
        )


class UpdateError(ChaseError):
    """A client's update does not fit the model and is refused."""


class LabelError(ChaseError):
    """A home, a question, an answer or an annotator does not fit."""


class ContractError(ChaseError):
    """A site and the server do not agree on classes, preprocessing, network or format."""


class FederationError(ChaseError):
    """A federation, its rules, its sites or its processes are not as they must be."""


class SummedBeforeError(FederationError):
    """What this site sends was part of a secure sum over other sites before."""

    def __init__(self) -> None:
        super().__init__("this round was summed with other sites before: what a site sends is part of one sum only")


class BadSharesError(FederationError):
    """Shares for a secure sum that other sites sent cannot be opened."""

    def __init__(self, sites: Sequence[int]) -> None:
        super().__init__(f"the shares that sites {', '.join(map(str, sites))} sent for a secure sum cannot be opened")
        self.sites = tuple(sites)


class TrainingError(ChaseError):
    """Training on a client did not work, for example because it diverged."""


class ClientError(ChaseError):
    """An error inside a client's turn, with the client, the round and the stage it happened in."""

    def __init__(self, client: str, round: int, stage: str, cause: BaseException) -> None:
        self.client, self.round, self.stage = client, round, stage
        super().__init__(f"client {client}, round {round}, {stage}: {str(cause) or type(cause).__name__}")


def unknown(kind: str, name: str, known: Iterable[str], see: str = "") -> str:
    """The sentence for a name that is not known, with the nearest one that is, and all others or the command to see."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'? " if near else ""
    others = f"`{see}` shows all {len(names)}" if see else f"known: {', '.join(names)}"
    return f"unknown {kind} '{name}'; {hint}{others}"
