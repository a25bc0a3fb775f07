"""Small homes for the tests of labelling."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from chase.annotation.annotator import Question
from chase.home.home import Home, HomeCard
from chase.home.page import serving

ANIMALS = ("cat", "dog", "horse")


def image_home(
    path: Path, count: int = 40, classes: tuple[str, ...] = ANIMALS, initial: dict[int, int] | None = None
) -> Home:
    """Grey images in which sample i has brightness 5 * i."""
    images = np.empty((count, 1, 8, 8), dtype=np.uint8)
    images[:] = (5 * np.arange(count) % 256).astype(np.uint8)[:, None, None, None]
    images[:, :, 2:6, 2:6] = 255 - images[:, :, 2:6, 2:6]
    return Home.create(path, HomeCard(0, "clinic", classes, "image"), np.arange(count), images, initial=initial)


def originals_home(root: Path, files: dict[str, Any], folder: Path | None = None) -> Home:
    """A home whose samples are files: arrays are saved as pictures, bytes as they are."""
    folder = folder or root / "files"
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        else:
            Image.fromarray(content).save(folder / name)
    names = sorted(file.name for file in folder.iterdir())
    card = HomeCard(0, "clinic", ANIMALS, "image", originals=str(folder))
    return Home.create(root / "home", card, np.arange(len(names)), np.zeros((len(names), 1, 8, 8), np.uint8), names)


def text_home(path: Path, texts: list[str], classes: tuple[str, ...]) -> Home:
    """Texts kept as tokens of an alphabet, all cut or filled to one length."""
    alphabet = "".join(sorted(set("".join(texts)) | {" "}))
    width = max(map(len, texts))
    tokens = np.array([[alphabet.index(c) for c in t.rjust(width)] for t in texts], dtype=np.uint8)
    return Home.create(path, HomeCard(0, "library", classes, "text", alphabet), np.arange(len(texts)), tokens)


def ask(home: Home, samples: range | list[int], round: int = 2, thoughts: bool = True) -> None:
    """File questions; the model holds class 0 likeliest."""
    top = ((0, 0.625), (1, 0.25)) if thoughts else ()
    home.inbox.file([Question(s, round, round - 1, "chase", 4, 4.0, top) for s in samples])


def certificate(folder: Path) -> dict[str, Path]:
    """A new certificate of localhost and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here to make a certificate with")
    found = {"cert": folder / "cert.pem", "key": folder / "key.pem"}
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    where = ["-keyout", str(found["key"]), "-out", str(found["cert"])]
    subprocess.run([*make.split(), *names, *where], capture_output=True, check=True)
    return found


@contextmanager
def served(home: Home, port: int = 0, **more: Path) -> Iterator[str]:
    """The page of a home on a real port, in a thread; gives its address."""
    address = serving.Address(port=port, **more)
    with serving.bind(address) as listening:
        port = listening.getsockname()[1]
        server = serving.server(home, address, port)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield serving.origin(address, port)
        finally:
            server.should_exit = True
            thread.join()
