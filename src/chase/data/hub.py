"""``chase data get``: from the Hugging Face hub into the local layout, NAME/train.parquet and NAME/test.parquet.

Everything is then read from the local files, so a run never waits for a network.
"""

from __future__ import annotations

import gzip
import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray
from PIL import Image

from chase.core.errors import DataError, MissingData
from chase.core.files import replacing
from chase.data.known import KNOWN

PREFIX = "hub:"
TIMEOUT = 10.0
EMNIST_NAMES = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def local_name(name: str) -> str:
    """The directory of a data set: its name, or ``owner--set`` for ``hub:owner/set``."""
    return name.removeprefix(PREFIX).replace("/", "--").replace(":", "--")


def get(name: str, into: Path) -> Path:
    """Fetch a data set and return its directory; one that is there already is left as it is."""
    place = into / local_name(name)
    if (place / "train.parquet").is_file():
        return place
    if place.exists() and any(place.iterdir()):
        raise MissingData(f"{place} exists but has no train.parquet: add it, or remove the directory and fetch again")
    known = KNOWN.get(name)
    hub = known.hub if known is not None else name.removeprefix(PREFIX)
    hub_id, _, config = hub.partition(":")
    _reach(name, hub_id)
    with replacing(place) as temporary:
        try:
            temporary.mkdir(parents=True)
        except OSError as error:
            reason = error.strerror or error
            raise DataError(f"cannot write {place}: {reason}; name another directory with --data-dir") from None
        if known is not None and known.idx:
            fetch_idx(hub_id, temporary)
        else:
            fetch_parquet(hub_id, config or None, temporary)
        if not (temporary / "train.parquet").is_file():
            raise DataError(f"{hub_id} on the hub has no part named 'train', so it cannot be used as it is")
    return place


def offline(name: str, reason: str) -> MissingData:
    """The sentence for a data set that is neither here nor to be had."""
    local, place = local_name(name), os.environ.get("CHASE_DATA", "")
    lost = f", and CHASE_DATA = {place} does not exist" if place and not os.path.isdir(place) else ""
    return MissingData(
        f"'{name}' has no local copy{lost}, and cannot be fetched ({reason}): run `chase data get {name}` where there "
        f"is a network, or put {local}/train.parquet and {local}/test.parquet into a directory and name it with "
        "--data-dir (--set data_dir=... in a study) or CHASE_DATA"
    )


def _reach(name: str, hub_id: str) -> None:
    """Fail within seconds where the hub cannot be reached or does not have the data set."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled, RepositoryNotFoundError

    try:
        HfApi().dataset_info(hub_id, timeout=TIMEOUT)
    except RepositoryNotFoundError:
        raise DataError(f"the hub has no public data set '{hub_id}'; check its spelling on huggingface.co") from None
    except OfflineModeIsEnabled:
        raise offline(name, "offline mode is set") from None
    except HfHubHTTPError as error:
        raise offline(name, f"the hub answered {error.response.status_code}") from None
    except Exception as error:
        if not _is_network_error(error):
            raise
        raise offline(name, "no network") from None


def _is_network_error(error: BaseException) -> bool:
    """Whether an error comes from the connection; the hub library changed its HTTP library, so it is told by module."""
    modules = {cls.__module__.partition(".")[0] for cls in type(error).__mro__}
    return isinstance(error, OSError) or bool(modules & {"httpx", "httpcore", "requests", "urllib3"})


def fetch_parquet(hub_id: str, config: str | None, into: Path) -> None:
    """Every part of a hub data set as a parquet file; class names and images travel along."""
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    import datasets

    try:
        parts = datasets.load_dataset(hub_id, config)
    except (ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        raise MissingData(f"cannot read {hub_id} from the hub: {str(error).splitlines()[0]}") from None
    save_parts(parts, into)


def save_parts(parts: Any, into: Path) -> None:
    """Parts (by name) of a Hugging Face data set as NAME.parquet."""
    for part in parts:
        parts[part].to_parquet(str(into / f"{part}.parquet"))


def fetch_idx(hub_id: str, into: Path) -> None:
    """EMNIST from its IDX files."""
    from huggingface_hub import hf_hub_download

    for part in ("train", "test"):
        images, labels = (
            Path(hf_hub_download(hub_id, f"emnist-byclass-{part}-{what}-ubyte.gz", repo_type="dataset"))
            for what in ("images-idx3", "labels-idx1")
        )
        write_idx(images, labels, into / f"{part}.parquet")


def read_idx(path: Path) -> NDArray[np.uint8]:
    """An IDX file of unsigned bytes: two zero bytes, type 8, number of dimensions, big-endian sizes, data."""
    content = gzip.decompress(path.read_bytes())
    if content[:3] != b"\x00\x00\x08":
        raise DataError(f"{path} is not an IDX file of bytes")
    dimensions = content[3]
    shape = np.frombuffer(content, dtype=">u4", count=dimensions, offset=4).astype(np.int64)
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def write_idx(images: Path, labels: Path, into: Path) -> None:
    """IDX images and labels as a parquet file; EMNIST's images lie on their side and are turned upright."""
    import json

    encoded = []
    for image in read_idx(images).transpose(0, 2, 1):
        out = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(image)).save(out, "PNG")
        encoded.append({"bytes": out.getvalue(), "path": None})
    features = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": list(EMNIST_NAMES)}}
    table = pa.table({"image": encoded, "label": read_idx(labels).astype(np.int64)})
    note = json.dumps({"info": {"features": features}})
    pyarrow.parquet.write_table(table.replace_schema_metadata({"huggingface": note}), into)
