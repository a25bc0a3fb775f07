"""What is written down about the program and the machine of a run."""

from __future__ import annotations

import os
from pathlib import Path

from chase.core.provenance import digest, processor, provenance


def test_versions_source_and_machine() -> None:
    found = provenance()
    assert found["packages"]["torch"].startswith("2.")
    assert len(found["source"]) == 12
    assert found["cores"] == os.cpu_count()


def test_the_digest_changes_with_names_and_contents_of_program_files_only(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "one.py").write_text("a = 1\n")
    first = digest(tmp_path)
    (tmp_path / "room" / "page.css").write_text("p {}\n")
    assert digest(tmp_path) == first
    (tmp_path / "room" / "one.py").write_text("a = 2\n")
    second = digest(tmp_path)
    (tmp_path / "room" / "one.py").rename(tmp_path / "room" / "two.py")
    third = digest(tmp_path)
    (tmp_path / "room" / "kernel.c").write_text("int a;\n")
    assert len({first, second, third, digest(tmp_path)}) == 4


def test_the_processor_by_name_where_the_system_tells(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    assert processor(info)
    info.write_text("processor\t: 0\nmodel name\t: Fast One\nprocessor\t: 1\nmodel name\t: Fast One\n")
    assert processor(info) == "Fast One"
