"""``chase label role``, ``policy``, ``gold``, ``agreement`` and ``audit``: several people at one home."""

from __future__ import annotations

import json
import shlex
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from chase.core.errors import LabelError
from chase.core.operator import operator
from chase.core.text import counted, quoted
from chase.home.again import ask_again, doubtful
from chase.home.annotator_agreement import Estimate, agreement
from chase.home.answer_lines import Line
from chase.home.exchange import find_label, find_sample, read_csv
from chase.home.home import Home, write_durably
from chase.home.policy import Policy
from chase.home.team import gold_scores, initial_labels, overview, set_gold

HomeArg = Annotated[Path, typer.Argument(help="A client's home: the directory with its questions and answers.")]
OutOpt = Annotated[Path | None, typer.Option("--out", "-o", help="File to write (default: standard output).")]


def register(group: typer.Typer) -> None:
    """Add the commands."""
    group.command("status", epilog="Example: chase label status runs/demo/home")(status)
    group.command("role", epilog="Example: chase label role runs/demo/home adjudicator -a eva")(role)
    group.command("policy", epilog="Example: chase label policy runs/demo/home answers_per_sample=2")(policy)
    group.command("gold", epilog="Example: chase label gold runs/demo/home gold.csv")(gold)
    group.command("agreement", epilog="Example: chase label agreement runs/demo/home")(show_agreement)
    group.command("again", epilog="Example: chase label again runs/demo/home --most 20")(again)
    group.command("audit", epilog="Example: chase label audit runs/demo/home -o audit.jsonl")(audit)


def status(
    home: HomeArg, as_json: Annotated[bool, typer.Option("--json", help="As JSON, with all digits.")] = False
) -> None:
    """Show how far the labelling is, what each person did, and what waits for somebody who is not there."""
    opened = Home(home)
    found = overview(opened, 0)
    if as_json:
        keep = ("progress", "conflicts", "unsure", "waiting", "people", "agreement", "policy", "warnings")
        print(json.dumps({name: found[name] for name in keep}, indent=2))
        return
    far = found["progress"]
    print(
        f"{far['answered']} labelled, {far['skipped']} set aside, {far['open']} to do; {found['waiting']} wait for "
        f"another opinion, {found['conflicts']} in conflict, {found['unsure']} not sure"
    )
    for one in found["people"]:
        gold = f", gold {one['gold']:.0%} of {one['gold_asked']}" if one["gold_asked"] else ""
        speed = "" if one["seconds"] is None else f", {one['seconds']:.1f} s per label"
        access = "" if one["access"] else ", no access"
        print(f"{one['name']} ({one['role']}{access}): {counted(one['answers'], 'answer')}{speed}{gold}")
    for sentence in found["warnings"]:
        print(f"warning: {sentence}")


def role(
    home: HomeArg,
    what: Annotated[Literal["annotator", "adjudicator", "lead"], typer.Argument(help="The role.")],
    annotator: Annotated[list[str], typer.Option("--annotator", "-a", help="Person who gets the role; repeatable.")],
) -> None:
    """Make people annotators, adjudicators or leads."""
    opened = Home(home)
    for name in annotator:
        person = opened.set_role(name, what, operator())
        link = f"chase label link {quoted(home)} -a {shlex.quote(person.name)}"
        access = "" if person.id in opened.people.present() else f", without access so far: {link}"
        print(f"{person.name}: {what}{access}")


def policy(
    home: HomeArg,
    change: Annotated[
        list[str] | None, typer.Argument(help="NAME=VALUE, repeatable; without one, the policy is shown.")
    ] = None,
) -> None:
    """Show or change the rules for everybody who labels; a change applies from the next question on."""
    opened = Home(home)
    values = dict(_value(one) for one in change or [])
    if values:
        opened.set_policy(values, operator())
    current = opened.policies.read()
    for one in fields(Policy):
        print(f"{one.name} = {json.dumps(getattr(current, one.name))}    # {one.metadata['help']}")


def _value(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise LabelError(f"'{text}' sets nothing: write NAME=VALUE, for example answers_per_sample=2")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def gold(
    home: HomeArg,
    file: Annotated[Path | None, typer.Argument(help="A CSV with sample or name, and class or label.")] = None,
    initial: Annotated[bool, typer.Option("--initial", help="Use the labels that were known from the start.")] = False,
) -> None:
    """Set gold samples, whose class is known; some are mixed into the questions to check annotators (`gold_share`)."""
    opened = Home(home)
    labels = initial_labels(opened) if initial else {}
    if file is not None:
        try:
            lines = read_csv(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise LabelError(f"cannot read {file}: {error}") from None
        labels |= dict(_gold_line(opened, line) for line in lines)
    if labels:
        print(counted(set_gold(opened, labels, operator()), "gold sample"))
    for name, (asked, right) in sorted(gold_scores(opened).items()):
        print(f"{name}: {right} of {asked} right ({right / asked:.0%})")


def _gold_line(home: Home, line: Line) -> tuple[int, int]:
    label = find_label(home.card.classes, line)
    if label is None:
        raise LabelError(f"{line.where}: a gold sample needs a class")
    return find_sample(home, line), label


def _shown(one: Estimate) -> str:
    if one.value is None:
        return "undefined (one class only)"
    return f"{one.value:.3f}" + ("" if one.low is None else f" [{one.low:.3f}, {one.high:.3f}]")


def show_agreement(
    home: HomeArg, as_json: Annotated[bool, typer.Option("--json", help="As JSON, with all digits.")] = False
) -> None:
    """Show how far annotators agree: Krippendorff's alpha, Cohen's kappa by pair, alpha by class; 95 % intervals."""
    opened = Home(home)
    found = agreement(opened.ledger.votes(), opened.card.classes)
    if as_json:
        print(json.dumps(found.to_json(), indent=2))
        return
    if not found.samples:
        print("No sample has answers of two people yet (chase label policy HOME answers_per_sample=2).")
        return
    print(f"{found.samples} samples with answers of two people or more")
    print(f"Krippendorff's alpha: {_shown(found.alpha)}")
    for pair in found.pairs:
        print(f"{pair.first} and {pair.second}: kappa {_shown(pair.kappa)}, {pair.same:.0%} same of {pair.samples}")
    for one in found.classes:
        print(f"class {one.name}: alpha {_shown(one.alpha)}, {one.samples} samples")


def again(
    home: HomeArg,
    most: Annotated[int, typer.Option("--most", min=1, help="Second opinions to ask for, at most.")] = 10,
    dry: Annotated[bool, typer.Option("--dry-run", help="Only show which.")] = False,
) -> None:
    """Ask for second opinions on labels that are trusted less than new samples (ActiveLab score)."""
    opened = Home(home)
    found = doubtful(opened)
    doubted, alone = found[:most], len(doubtful(opened, anybody=True)) - len(found)
    if doubted and not dry:
        with opened.database.transaction():
            ask_again(opened, doubted)
            opened.audit.note(operator(), "again", samples=[one.sample for one in doubted])
    for one in doubted:
        print(f"{one.name}: {opened.card.classes[one.label]} is trusted {one.score:.2f}")
    if doubted:
        print(_doubtful(len(doubted)) if dry else f"{counted(len(doubted), 'second opinion')} asked for")
    if alone:
        print(
            f"{_doubtful(alone)}, but nobody else can be asked: make a link for another annotator"
            f" (chase label link {quoted(home)} -a NAME)"
        )
    if not doubted and not alone:
        print("no second opinion is needed: no label is trusted less than a new sample")


def _doubtful(count: int) -> str:
    return f"{counted(count, 'label')} {'is' if count == 1 else 'are'} doubtful"


def audit(
    home: HomeArg,
    out: OutOpt = None,
    last: Annotated[
        str,
        typer.Option(
            "--last",
            help="Hash noted earlier as the last of the log; the check fails if the log no longer contains it.",
        ),
    ] = "",
) -> None:
    """Check the audit log and write it as JSON lines: who did what, when, having seen what."""
    opened = Home(home)
    count, final = opened.audit.verify(last)
    if out is not None:
        lines = [json.dumps(line, ensure_ascii=False) for line in opened.audit.lines()]
        write_durably(out, ("\n".join(lines) + "\n" if lines else "").encode())
    print(f"{count} lines, none changed or removed; the last hash is {final} (keep it elsewhere to check later)")
