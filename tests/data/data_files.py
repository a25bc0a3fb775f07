"""Small files in the layouts that the sources read."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from PIL import Image


def pixels(count: int, shape: tuple[int, int, int], labels: NDArray[np.int64], seed: int = 0) -> NDArray[np.uint8]:
    """Noise whose brightness tells the class."""
    noise = np.random.default_rng(seed).integers(0, 40, size=(count, *shape))
    steps = 200 // (int(labels.max()) + 1)
    return (noise + (labels * steps).reshape(-1, 1, 1, 1)).astype(np.uint8)


def encode(image: NDArray[np.uint8], form: str = "WEBP") -> bytes:
    """One image (c, h, w), lossless."""
    array = image[0] if image.shape[0] == 1 else image.transpose(1, 2, 0)
    out = io.BytesIO()
    Image.fromarray(array).save(out, form, **({"lossless": True} if form == "WEBP" else {}))
    return out.getvalue()


def image_parquet(
    path: Path,
    images: NDArray[np.uint8],
    labels: Sequence[int],
    names: Sequence[str],
    image_column: str = "image",
    label_column: str = "label",
    **more: Sequence[str],
) -> None:
    """A parquet file as the Hugging Face library writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    features = {image_column: {"_type": "Image"}, label_column: {"_type": "ClassLabel", "names": list(names)}}
    columns = {
        image_column: [{"bytes": encode(image), "path": None} for image in images],
        label_column: pa.array(labels, type=pa.int64()),
        **more,
    }
    note = json.dumps({"info": {"features": features}})
    pq.write_table(pa.table(columns).replace_schema_metadata({"huggingface": note}), path)
