"""What a result depends on besides its settings: versions, the source and the machine."""

from __future__ import annotations

import os
import platform
import re
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("chase-fal", "torch", "numpy", "safetensors", "scikit-learn")
SOURCE = Path(__file__).parents[1]
CPUINFO = Path("/proc/cpuinfo")


def provenance() -> dict[str, Any]:
    """Versions of what decides results, a digest of this program, and the machine."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "packages": {package: installed(package) for package in PACKAGES},
        "source": digest(SOURCE),
    }


def installed(package: str) -> str:
    """Its version."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed as a package"


def digest(root: Path) -> str:
    """Twelve hex digits over the Python and C files below a directory: two states of one version are told apart."""
    found = sha256()
    for path in sorted(path for kind in ("py", "c", "h") for path in root.rglob(f"*.{kind}")):
        content = path.read_bytes()
        found.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode() + content)
    return found.hexdigest()[:12]


def processor(info: Path = CPUINFO) -> str:
    """The processor's name, or its kind where the system does not tell."""
    try:
        named = re.search(r"^model name\s*:\s*(.+)$", info.read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        named = None
    return named[1].strip() if named else platform.processor() or platform.machine()
