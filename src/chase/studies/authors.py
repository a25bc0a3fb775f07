"""What the authors' code does differently from the paper's text: weights, shards, image size, normalisation."""

from chase.studies.study import CHASE, EV, RANDOM, Scene, Study, StudyPart
from chase.studies.why import ALL_GLOBAL

SHARDS = {"behaviour": "ReCo", "partition": "shards-reference", "image_size": 64, "client_weights": "shuffled"}

STUDY = Study(
    "authors",
    "the authors' code on MNIST (64x64 pixels, shared shards, shuffled client weights), shuffled weights alone, and "
    "CIFAR-10 normalised by its own mean and deviation (ReCo)",
    (
        StudyPart(
            (Scene("mnist", {"behaviour": "ReCo", "client_weights": "shuffled"}),),
            (RANDOM, EV, CHASE),
            "Shuffled client weights",
            "FedRandom",
        ),
        StudyPart(
            (Scene("mnist", SHARDS),),
            (RANDOM, EV, ALL_GLOBAL),
            "MNIST at 64x64 with shared shards",
            "FedRandom",
        ),
        StudyPart(
            (Scene("cifar10", {"behaviour": "ReCo", "normalisation": "statistics"}),),
            (RANDOM, EV, CHASE),
            "Normalisation by the data set's mean and deviation",
            "FedRandom",
        ),
    ),
    "Shuffled: the label counts weigh models of random clients, which is equal weights on average. "
    "The presets normalise as the authors' code does.",
)
