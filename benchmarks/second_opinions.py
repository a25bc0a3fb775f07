"""When does a second opinion pay? Simulated people label digits; a linear model learns from what they said.

    python benchmarks/second_opinions.py                  a table over skills, in a few minutes
    python benchmarks/second_opinions.py --budget 100 --seeds 1

Three ways to spend one budget of answers: every answer on a new sample; two answers on every sample; and whichever has
the lower ActiveLab score. Labels are made of answers by Dawid-Skene. Reported: accuracy on held-out digits.
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from chase.annotation.crowd import SimulatedPerson
from chase.annotation.opinions import dawid_skene, numbered
from chase.annotation.second_opinion import labelled_score, new_score
from chase.core.randomness import rng

WAYS = ("new", "twice", "activelab")
STEP = 20
CLASSES = 10


def crowd(skill: float) -> list[SimulatedPerson]:
    """Five people around a skill: one careful, one careless, one who mixes classes up, one who tires."""
    return [
        SimulatedPerson("careful", min(1.0, skill + 0.05)),
        SimulatedPerson("usual", skill),
        SimulatedPerson("careless", max(0.0, skill - 0.15)),
        SimulatedPerson("mixes up", skill, confusion=0.9),
        SimulatedPerson("tires", skill, fatigue=0.3, stamina=60),
    ]


def accuracy(way: str, skill: float, budget: int, seed: int) -> float:
    inputs, truth = load_digits(return_X_y=True)
    inputs = inputs / 16
    order = rng(seed, "split").permutation(len(truth))
    pool, test = order[:1200], order[1200:]
    people, said, answered = crowd(skill), defaultdict(dict), defaultdict(int)
    turn, model, quality = 0, None, np.full(5, skill)
    label: dict[int, int] = {}
    fit, commonest = skill, 1 / CLASSES

    def ask(sample: int) -> None:
        nonlocal turn
        free = [p for p in range(5) if p not in said[sample]]
        who = free[turn % len(free)]
        said[sample][who] = people[who].says(sample, int(truth[sample]), CLASSES, seed, answered[who])
        answered[who] += 1
        turn += 1

    while turn < budget:
        fresh = [s for s in pool.tolist() if not said[s]]
        probs = None if model is None else model.predict_proba(inputs[fresh])
        if probs is None:
            for sample in fresh[: STEP if way != "twice" else STEP // 2]:
                for _ in range(2 if way == "twice" else 1):
                    ask(sample)
        else:
            full = np.full((len(fresh), CLASSES), 1e-6)
            full[:, model.classes_] = probs
            trust = new_score(full, float(quality.mean()), fit, commonest)
            if way == "activelab":
                held = [s for s in said if said[s] and len(said[s]) < 3]
                known = np.full((len(held), CLASSES), 1e-6)
                known[:, model.classes_] = model.predict_proba(inputs[held])
                scores = [
                    (labelled_score(p, [(c, quality[w]) for w, c in said[s].items()], label[s], fit, commonest), s)
                    for p, s in zip(known, held, strict=True)
                ]
                both = sorted([*zip(trust.tolist(), fresh, strict=True), *scores])
                for _, sample in both[:STEP]:
                    ask(sample)
            else:
                for place in np.argsort(trust)[: STEP if way == "new" else STEP // 2]:
                    for _ in range(2 if way == "twice" else 1):
                        ask(fresh[place])
        rows = [(s, w, c) for s, by in said.items() for w, c in by.items()]
        votes, samples, workers = numbered(rows)
        found = dawid_skene(votes, len(samples), len(workers), CLASSES)
        quality = np.full(5, float(found.quality().mean()))
        quality[list(workers)] = found.quality()
        label = {s: int(found.posterior[i].argmax()) for s, i in samples.items()}
        train = list(label)
        commonest = max(np.bincount(list(label.values()))) / len(label)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = LogisticRegression(C=1.0, max_iter=60).fit(inputs[train], [label[s] for s in train])
        fit = float(model.score(inputs[train], [label[s] for s in train])) * float(quality.mean())
    return float(model.score(inputs[test], truth[test]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--skills", type=float, nargs="+", default=[0.95, 0.8, 0.65, 0.5])
    args = parser.parse_args()
    print(f"accuracy after {args.budget} answers, mean over {args.seeds} seeds (lowest to highest)")
    for skill in args.skills:
        cells = []
        for way in WAYS:
            found = [accuracy(way, skill, args.budget, seed) for seed in range(args.seeds)]
            cells.append(f"{way} {np.mean(found):.3f} ({min(found):.3f} to {max(found):.3f})")
        print(f"skill {skill:.2f}: " + ", ".join(cells), flush=True)


if __name__ == "__main__":
    main()
