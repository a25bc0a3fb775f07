from __future__ import annotations

from pathlib import Path

from homes import ask, image_home

from chase.home.inbox import Given
from chase.report.agreement_section import agreement_section
from chase.report.runs import MethodRuns, RunData


def test_the_report_shows_how_far_people_agree(tmp_path: Path) -> None:
    run = RunData(tmp_path, {}, [])
    assert agreement_section([MethodRuns("chase", [run])]) is None
    home = image_home(tmp_path / "home")
    assert agreement_section([MethodRuns("chase", [run])]) is None, "nobody has answered yet"
    home.policies.change({"answers_per_sample": 2})
    ask(home, range(12))
    for name in ("anna", "ben"):
        who = home.people.named(name).id
        for sample in range(12):
            home.inbox.answer(Given(sample, sample % 3 if name == "anna" or sample < 9 else 0, who))
    section = agreement_section([MethodRuns("chase", [run])])
    assert section is not None
    assert "anna and ben" in section.body
    assert "class horse" in section.body
