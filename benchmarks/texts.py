"""Texts of any CSV file: `chase run` by default against TF-IDF with logistic regression, on the same labels.

    python -m benchmarks.texts train.csv test.csv --labels 700 4000

One client holds all training texts, of which some are labelled; nothing is asked for, so both learners have the same
labels and the same test texts. ``chase`` looks at all training texts for its features, as in use; TF-IDF is fitted on
the labelled ones.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from chase.data.resident import DataSet
from chase.data.tabular_files import read_tables
from chase.run.experiment import Experiment


def by_chase(train: Path, test: Path, share: float, seed: int, out: Path, changes: list[str]) -> Experiment:
    """A finished run of the command line on one client."""
    options = [f"test_data={test}", "clients=1", "partition=iid", f"initial_labels={share}", "budget=0", f"seed={seed}"]
    sets = [part for option in (*options, *changes) for part in ("--set", option)]
    command = [sys.executable, "-m", "chase", "run", str(train), "--rounds", "2", "--out", str(out), *sets, "--json"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return Experiment.resume(out)


def by_tfidf(data: DataSet, rows: NDArray[np.int64], **tuned: bool) -> float:
    """Accuracy of TF-IDF with logistic regression: scikit-learn's defaults, or damped counts and a weaker penalty."""
    assert data.train_texts is not None
    assert data.test_texts is not None
    known = [data.train_texts[row] for row in rows.tolist()]
    tested = [data.test_texts[row] for row in range(data.test_labels.size)]
    reader = TfidfVectorizer(sublinear_tf=bool(tuned)).fit(known)
    learner = LogisticRegression(C=10.0 if tuned else 1.0, max_iter=1000)
    learner.fit(reader.transform(known), data.train_labels[rows])
    return float(learner.score(reader.transform(tested), data.test_labels))


def measure(train: Path, test: Path, labels: int, seed: int, changes: list[str]) -> dict[str, float]:
    """Both learners with as many labels; the difference is to the better of the two recipes of scikit-learn."""
    with tempfile.TemporaryDirectory() as place:
        begun = time.perf_counter()
        share = labels / read_tables((train,)).rows.num_rows
        done = by_chase(train, test, share, seed, Path(place) / "run", changes)
        seconds, line = time.perf_counter() - begun, done.record.metrics[-1]
        rows = done.world().start(0).pools.labeled
        plain, tuned = by_tfidf(done.data, rows), by_tfidf(done.data, rows, tuned=True)
    return {
        "labels": int(rows.size),
        "chase": line["test_accuracy"],
        "tf-idf, defaults": plain,
        "tf-idf, tuned": tuned,
        "difference": line["test_accuracy"] - max(plain, tuned),
        "seed": seed,
        "seconds": round(seconds, 1),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--labels", type=int, nargs="+", default=[700, 4000])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--set", action="append", default=[], dest="changes", help="a setting of the run, KEY=VALUE")
    given = parser.parse_args()
    for seed in given.seeds:
        for count in given.labels:
            print(json.dumps(measure(given.train, given.test, count, seed, given.changes)), flush=True)
