"""All methods under both behaviours, non-IID and IID."""

from chase.studies.study import METHODS, Scene, Study, StudyPart, scenes

STUDY = Study(
    "overall",
    "all methods: AbCo and ReCo on MNIST, CIFAR-10; ReCo on CIFAR-100, EMNIST; IID with ReCo on CIFAR-10, CIFAR-100",
    (
        StudyPart(
            (
                *scenes("mnist", "cifar10", behaviour="AbCo"),
                *scenes("mnist", "cifar10", "cifar100", "emnist", behaviour="ReCo"),
                Scene("cifar10", {"behaviour": "ReCo", "partition": "iid"}),
                Scene("cifar100", {"behaviour": "ReCo", "partition": "iid"}),
            ),
            METHODS,
            against="FedRandom",
        ),
    ),
)
