from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, strategies
from PIL import Image
from safetensors.numpy import load_file

from chase import settings
from chase.core.weights import digest
from chase.data import texts
from chase.data.images import decode
from chase.data.options import DataOptions
from chase.export import load_model
from chase.export.trained import read_trained
from chase.run.experiment import Experiment


@pytest.fixture
def png(tmp_path) -> Path:
    """A grey image of the model's own size."""
    pixels = np.arange(64, dtype=np.uint8).reshape(8, 8) * 4
    Image.fromarray(pixels).save(tmp_path / "own.png")
    return tmp_path / "own.png"


@pytest.fixture
def photo(tmp_path) -> Path:
    """A larger image in colour."""
    colours = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    Image.fromarray(colours).save(tmp_path / "photo.jpg")
    return tmp_path / "photo.jpg"


def test_a_run_says_what_its_model_needs(trained):
    card = json.loads((trained / "model.json").read_text())
    assert card["classes"] == list("0123456789")
    assert (card["shape"], card["kind"]) == ([1, 8, 8], "image")
    assert (card["mean"], card["std"]) == ([0.305], [0.376])
    assert card["net"]["name"] == "tiny-cnn"


def test_an_exported_model_predicts_the_same_without_chase(chase, run_dir, png, photo, tmp_path):
    out = tmp_path / "model"
    done = chase("export", run_dir, "--out", out)
    assert done.code == 0
    assert "the model after round 3" in done.out
    here = json.loads(chase("predict", run_dir, png, photo, "--json").out)
    without_chase = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    shown = subprocess.run(
        [sys.executable, "-I", str(out / "load_model.py"), str(png), str(photo)],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=without_chase,
    )
    rows = [line.split("\t") for line in shown.stdout.splitlines()]
    assert [row[:2] for row in rows] == [[p["id"], p["class"]] for p in here]
    assert [float(row[2]) for row in rows] == pytest.approx([p["probability"] for p in here], abs=1e-4)
    assert rows[1][3] == here[1]["note"] == "converted to grey, resized from 30x20 to 8x8"


def test_the_loader_imports_nothing_of_chase():
    source = Path(load_model.__file__).read_text()
    assert "import chase" not in source
    assert "from chase" not in source


def test_exported_files_say_where_they_come_from(chase, run_dir):
    assert chase("export", run_dir, "--format", "weights").code == 0
    weights = load_file(run_dir / "export" / "model.safetensors")
    about = json.loads((run_dir / "export" / "model.json").read_text())
    assert about["weights_digest"] == digest(weights) == digest(read_trained(run_dir).weights)
    assert about["settings_digest"] == read_trained(run_dir).settings_digest
    assert about["round"] == 3
    assert 0 <= about["test_accuracy"] <= 1
    assert not (run_dir / "export" / "model.torchscript").exists()


def test_the_settings_digest_follows_what_decides_the_result(run_dir, trained):
    text = (run_dir / "settings.toml").read_text()
    (run_dir / "settings.toml").write_text(text.replace("rounds = 3", "rounds = 9"))
    assert read_trained(run_dir).settings_digest == read_trained(trained).settings_digest


def test_an_onnx_program_gives_the_outputs_of_the_network(chase, run_dir):
    """As a user would run it: onnxruntime, without chase or torch."""
    runtime = pytest.importorskip("onnxruntime")
    assert chase("export", run_dir, "--format", "onnx").code == 0
    session = runtime.InferenceSession(run_dir / "export" / "model.onnx", providers=["CPUExecutionProvider"])
    for count in (1, 7):
        pixels = torch.randint(0, 256, (count, 1, 8, 8), dtype=torch.uint8)
        (got,) = session.run(["logits"], {"input": pixels.numpy()})
        with torch.no_grad():
            torch.testing.assert_close(torch.from_numpy(got), read_trained(run_dir).model(pixels), atol=1e-5, rtol=0)


def test_a_program_that_differs_is_refused_and_not_left_behind(chase, run_dir, monkeypatch):
    trained = read_trained(run_dir)
    wrong = type(trained.model)(trained.model.net, trained.card)
    wrong.shift.add_(0.01)
    monkeypatch.setattr(torch.jit, "trace", lambda model, inputs, trace=torch.jit.trace: trace(wrong.eval(), inputs))
    done = chase("export", run_dir)
    assert done.code == 2
    assert "differs from the network" in done.err
    assert list((run_dir / "export").iterdir()) == []


def test_a_newer_export_removes_the_programs_of_the_older(chase, run_dir):
    assert chase("export", run_dir).code == 0
    about = json.loads((run_dir / "export" / "model.json").read_text())
    (run_dir / "export" / "model.json").write_text(json.dumps(about | {"weights_digest": "older"}))
    assert chase("export", run_dir, "--format", "weights").code == 0
    assert sorted(f.name for f in (run_dir / "export").iterdir()) == [
        "MODEL_CARD.md",
        "model.json",
        "model.safetensors",
    ]


def test_predictions_as_table_and_csv(chase, run_dir, png, photo, monkeypatch):
    monkeypatch.chdir(png.parent)
    shown = chase("predict", run_dir, png.name, photo.name)
    assert shown.code == 0
    assert "own.png" in shown.out
    assert "resized from 30x20 to 8x8" in shown.out
    rows = list(csv.DictReader(io.StringIO(chase("predict", run_dir, png, photo, "--csv").out)))
    assert [row["id"] for row in rows] == [str(png), str(photo)]
    assert all(0.1 <= float(row["probability"]) <= 1 for row in rows)
    assert rows[0]["note"] == ""


def test_predictions_are_those_of_the_test_set(run_dir, digits):
    trained = read_trained(run_dir)
    right = trained.probabilities(digits.test.inputs).argmax(dim=1).numpy() == digits.test_labels
    assert right.mean() == pytest.approx(trained.test_accuracy)


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "1", "LA", "I;16"])
@pytest.mark.parametrize("channels", [1, 3])
def test_files_are_read_as_training_images_are(tmp_path, mode, channels):
    noise = np.random.default_rng(1).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    path = tmp_path / "image.png"
    if mode == "I;16":
        Image.fromarray(noise[..., 0].astype(np.uint16) * 200).save(path)
    else:
        Image.fromarray(noise).convert(mode).save(path)
    wanted = decode([path], ["image"], DataOptions(image_size=8, channels=channels))
    got, _ = load_model.read_image(path, (channels, 8, 8), wanted.scale)
    np.testing.assert_array_equal(got.numpy(), wanted.pixels[0])


def bad_inputs(run_dir: Path, tmp_path: Path) -> dict[str, tuple[tuple[object, ...], str]]:
    text, cut, empty = tmp_path / "notes.txt", tmp_path / "cut.png", tmp_path / "empty"
    text.write_text("not an image")
    empty.mkdir()
    Image.fromarray(np.zeros((50, 50), dtype=np.uint8)).save(cut)
    cut.write_bytes(cut.read_bytes()[:60])
    return {
        "not a run": (("predict", empty, cut), "is not a run directory: it has no settings.toml"),
        "no run": (("export", tmp_path / "nothing"), "is not a run directory: it does not exist"),
        "no file": (("predict", run_dir, tmp_path / "nothing.png"), "nothing.png does not exist"),
        "a directory": (("predict", run_dir, empty), "empty holds no images"),
        "no image": (("predict", run_dir, text), "notes.txt: it is not an image"),
        "half an image": (("predict", run_dir, cut), "cut.png: image file is truncated"),
        "unknown format": (("export", run_dir, "--format", "onx"), "did you mean 'onnx'?"),
        "file as out": (("export", run_dir, "--out", text), "cannot write"),
    }


CASES = (
    "not a run",
    "no run",
    "no file",
    "a directory",
    "no image",
    "half an image",
    "unknown format",
    "file as out",
)


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_one_sentence_and_exit_code_2(chase, run_dir, tmp_path, case):
    arguments, sentence = bad_inputs(run_dir, tmp_path)[case]
    done = chase(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("chase: ")
    assert sentence in done.err
    assert done.err.count("\n") == 1


def test_a_run_directory_without_what_a_model_needs_is_named(chase, run_dir, png):
    shutil.rmtree(run_dir / "checkpoint")
    assert "has no trained model yet" in chase("predict", run_dir, png).err
    (run_dir / "model.json").write_text('{"format": 1}')
    assert "model.json cannot be read" in chase("predict", run_dir, png).err
    (run_dir / "model.json").unlink()
    done = chase("predict", run_dir, png)
    assert (done.code, "has no model.json" in done.err) == (2, True)


def test_isolated_clients_have_no_global_model(chase, tmp_path):
    small = ("--set", "rounds=1", "--set", "clients=2", "--set", "engine=inprocess", "--set", "form=isolated")
    assert chase("run", "digits", *small, "--out", tmp_path / "alone").code == 0
    done = chase("export", tmp_path / "alone")
    assert (done.code, "there is no global one" in done.err) == (2, True)


@pytest.mark.parametrize("command", ["export", "predict"])
def test_help_has_an_example(chase, command):
    assert f"Example: chase {command}" in chase(command, "--help").out


def text_about(how: str, length: int) -> dict[str, object]:
    """What model.json says of a model of texts."""
    _, vocabulary, _ = texts.tokenize([""], how, length)
    letters = texts.LETTERS if how == "characters" else ""
    return {
        "kind": "text",
        "shape": [length * (8 if how == "bytes" else 1)],
        "letters": letters,
        "net": {"vocabulary": vocabulary},
    }


@pytest.mark.parametrize("how", ["characters", "words", "bytes"])
@given(text=strategies.text(max_size=40))
@example(text="To be, or not to be: \nthat is the Question~ é")
def test_texts_are_read_as_training_texts_are(how, text):
    for length in (5, 30):
        wanted, _, _ = texts.tokenize([text], how, length)
        got, _ = load_model.read_text(text, text_about(how, length))
        assert got.tolist() == wanted[0].tolist()


def test_a_text_that_is_cut_says_so():
    assert load_model.read_text("one two three", text_about("words", 2))[1] == "only the first 2 words"
    assert load_model.read_text("abc", text_about("characters", 2))[1] == "only the last 2 characters"
    assert load_model.read_text("ab", text_about("characters", 2))[1] == ""
    assert load_model.read_text("a longer text", text_about("bytes", 1))[1] == "only the first 8 bytes"


@pytest.mark.parametrize(("net", "how"), [("char-lstm", "characters"), ("text-bag", "words"), ("", "bytes")])
def test_a_model_of_texts_is_exported_and_predicts(chase, tmp_path, net, how):
    rows = [f"{'good' if i % 2 else 'bad'} text number {i},{i % 2}" for i in range(60)]
    (tmp_path / "own.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    learner = {"net": net} if net else {"learner": "closed-form", "strategy": "margin", "text_features": 16}
    own = {"data": str(tmp_path / "own.csv"), **learner, "tokens": how, "text_length": 12, "partition": "iid"}
    small = own | {"clients": 2, "rounds": 1, "local_epochs": 2, "engine": "inprocess", "initial_labels": 0.2}
    run = Experiment.begin(settings.from_mapping(small).resolved(), tmp_path / "run")
    run.run()
    (tmp_path / "new.txt").write_text("a good text\n")
    for format in ("torchscript", "onnx"):
        done = chase("export", tmp_path / "run", "--out", tmp_path / "out", "--format", format)
        assert (done.code, done.err) == (0, "")
    (here,) = json.loads(chase("predict", tmp_path / "run", tmp_path / "new.txt", "--json").out)
    assert here["class"] in run.data.classes
    first = json.loads(chase("predict", tmp_path / "run", tmp_path / "own.csv", "--json").out)[:2]
    if not net:
        assert [row["class"] for row in first] == ["0", "1"]
        runtime = pytest.importorskip("onnxruntime")
        session = runtime.InferenceSession(str(tmp_path / "out" / "model.onnx"))
        given = np.stack(
            [texts.tokenize([row], "bytes", 12)[0][0] for row in ("bad text number 0", "good text number 1")]
        )
        (scores,) = session.run(None, {"input": given.astype(np.int64)})
        assert scores.argmax(axis=1).tolist() == [0, 1]
    model = load_model.load(tmp_path / "out")
    tokens, _ = load_model.read_file(tmp_path / "new.txt", model.about)
    assert float(model.probabilities(tokens[None]).max()) == pytest.approx(here["probability"], abs=1e-5)
    (tmp_path / "odd.txt").write_bytes(b"\xff\xfe\xfa")
    done = chase("predict", tmp_path / "run", tmp_path / "odd.txt")
    assert (done.code, "it is not UTF-8 text" in done.err) == (2, True)
