"""What a person with a session can do. Each action takes the person and the request's body and returns JSON."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from chase.annotation.opinions import COLLEAGUE
from chase.core.errors import LabelError
from chase.home.guide import Guide
from chase.home.home import Home
from chase.home.inbox import AnswerRefused, Given
from chase.home.page.guard import NUMBER, RequestRefused, seconds, text, whole
from chase.home.people import Person
from chase.home.team import gold_warning, overview

MOST_AT_ONCE = 100
LONGEST_COMMENT = 1000

Json = dict[str, Any]
Action = Callable[[Person, Json], Json]


class Actions:
    """The page's actions on one home."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._guide = Guide(home)
        with home.database.reading() as db:
            secret = db.execute("SELECT value FROM meta WHERE key = 'receipts'").fetchone()[0]
        self._secret = int(secret).to_bytes(8, "big")

    # receipts: proof that a sample was sent to this person

    def receipt(self, person: Person, sample: int, mark: str) -> str:
        """What the page must send with an answer: it has got these very bytes."""
        text = f"{person.id}:{sample}:{mark}"
        return f"{mark}.{hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()[:24]}"

    def _seen(self, person: Person, sample: int, receipt: str) -> str:
        """The hash of what was seen; a receipt that is none is refused."""
        mark = receipt.partition(".")[0]
        if not hmac.compare_digest(receipt.encode(), self.receipt(person, sample, mark).encode()):
            raise AnswerRefused("not seen", f"sample {sample} was not on your screen, so no answer is accepted for it")
        return mark

    # me

    def reveal(self, person: Person) -> str:
        """When this person sees the model's prediction: as the lead has set it, else as they like."""
        return self._home.policies.read().reveal_to(person.reveal)

    def me(self, person: Person, body: Json) -> Json:
        """Who I am and what I am labelling."""
        card = self._home.card
        return {
            "home": self._home.database.identity,
            "annotator": person.name,
            "role": person.role,
            "site": card.name,
            "kind": "image" if card.kind == "image" else "text",
            "predicts_next": card.predicts_next,
            "classes": list(card.classes),
            "guide": self._guide.exists,
            "progress": self._home.ledger.progress(person.id),
        } | self._rules(person)

    def _rules(self, person: Person) -> Json:
        """What of the policy the page must know; sent with every question, so that a change reaches open pages."""
        policy = self._home.policies.read()
        keep = ("reveal", "read_to_end", "idle_minutes", "session_hours")
        return {
            "reveal": self.reveal(person),
            "policy": {name: getattr(policy, name) for name in keep},
            "goal": policy.goal,
        }

    def settings(self, person: Person, body: Json) -> Json:
        """When I see the model's prediction."""
        if self._home.policies.read().reveal != "own":
            raise RequestRefused(403, "the lead has set for everybody when the model's prediction is shown", "policy")
        self._home.people.set_reveal(person.id, text(body, "reveal"))
        return {"reveal": body["reveal"]}

    def guide(self, person: Person, body: Json) -> Json:
        """The guidelines."""
        return self._guide.read()

    # questions and answers

    def next(self, person: Person, body: Json) -> Json:
        """My next questions, and how far we are."""
        want = whole(body, "want", 1, 1, MOST_AT_ONCE)
        shown = whole(body, "shown", 1, 0, MOST_AT_ONCE)
        if body.get("conflicts") is True:
            queue = self._conflicts(person, want)
        else:
            before = self.reveal(person) == "before"
            queue = self._home.inbox.next_for(person.id, want, shown, body.get("idle") is not True, before)
        for question in queue:
            self._hide(person, question)
        return {"queue": queue, "progress": self._home.ledger.progress(person.id)} | self._rules(person)

    def _hide(self, person: Person, question: Json) -> None:
        """Remove what could sway a person: the model's thought, and folders that are called like a class."""
        if self.reveal(person) != "before":
            question["thoughts"] = []
        question["name"] = self._plain_name(question["name"])

    def _plain_name(self, name: str) -> str:
        """A file name without folders that are called like a class."""
        *folders, file = name.split("/")
        return "/".join([*(folder for folder in folders if folder not in self._home.card.classes), file])

    def _conflicts(self, person: Person, want: int) -> list[Json]:
        if not person.decides:
            raise RequestRefused(403, "only an adjudicator or a lead decides conflicts", "role")
        queue = []
        for review in self._home.inbox.verdicts.reviews(want):
            question = self._home.inbox.question_of(review["sample"])
            if question is not None:
                queue.append(question | {"why": review["why"], "answers": review["answers"]})
        with self._home.database.transaction():
            for one in queue:
                self._note_look(person, one["sample"], [said for said in one["answers"] if said["by"] != person.name])
        return queue

    def _note_look(self, person: Person, sample: int, others: list[Json]) -> None:
        """Who sees what others answered is no longer blind; the audit log says so once, and what they saw."""
        if others and self._home.inbox.claims.look(sample, person.id):
            saw = [{key: one[key] for key in ("by", "label", "reason")} for one in others]
            self._home.audit.note(person.name, "look", sample, saw=saw)

    def answer(self, person: Person, body: Json) -> Json:
        """Take answers in; returns what was accepted and refused, and what comes next."""
        sent = body.get("answers")
        if (
            not isinstance(sent, list)
            or not 0 < len(sent) <= MOST_AT_ONCE
            or not all(isinstance(a, dict) for a in sent)
        ):
            raise RequestRefused(400, f"'answers' must be a list of 1 to {MOST_AT_ONCE} answers")
        batch = text(body, "batch") if body.get("batch") is not None else None
        given = [self._given(person, one, batch) for one in sent]
        accepted, refused = [], []
        with self._home.database.transaction():
            for one, raw in zip(given, sent, strict=True):
                outcome = self._one(person, one, raw)
                if isinstance(outcome, AnswerRefused):
                    refused.append({"sample": one.sample, "kind": outcome.kind, "error": str(outcome)})
                else:
                    accepted.append(self._accepted(person, one, outcome))
        done: Json = {"accepted": accepted, "refused": refused, "warning": ""}
        if self._home.policies.read().gold_share:
            done["warning"] = gold_warning(self._home, person.name)
        return done | self.next(person, body)

    def _one(self, person: Person, given: Given, raw: Json) -> int | AnswerRefused:
        """One answer: given to this person, seen by them, and accepted by the inbox; noted in the audit log."""
        try:
            checked = self._checked(person, given, raw)
            what = "decide" if checked.decides else "correct" if checked.revise else "answer"
            return self._home.answer(checked, person.name, what, seen=checked.seen)
        except AnswerRefused as refused:
            return refused

    def _checked(self, person: Person, given: Given, raw: Json) -> Given:
        inbox = self._home.inbox
        if given.decides and not person.decides:
            raise AnswerRefused("role", "only an adjudicator or a lead decides conflicts")
        mine = given.revise and inbox.was_answered(given.sample, person.id)
        if not given.decides and not mine and not inbox.claims.was_given(given.sample, person.id):
            if inbox.sample_name(given.sample) is None:
                raise AnswerRefused("unknown sample", f"sample {given.sample} is not one of this client's")
            raise AnswerRefused("not given", f"sample {given.sample} was not given to you")
        if not given.decides and inbox.claims.has_looked(given.sample, person.id):
            given = self._no_longer_blind(person, given)
        if given.label is None and given.reason == "bad sample":
            return given  # a picture that cannot be shown was never on a screen
        seen = self._seen(person, given.sample, text(raw, "seen", ""))
        return replace(given, seen=seen)

    def _no_longer_blind(self, person: Person, given: Given) -> Given:
        """Who has seen what others answered gives no further opinion, but may correct a decision of their own."""
        said = [one for one in self._home.inbox.verdicts.opinions(given.sample) if one.annotator == given.annotator]
        if given.revise and said and said[-1].decides:
            return replace(given, decides=True)
        current, sample = self._home.inbox.current(given.sample), given.sample
        if not person.decides:
            what = "only an adjudicator or a lead can decide it now"
        elif self._home.inbox.verdicts.needs_review(sample):
            what = "decide it under Conflicts instead"
        elif current is not None:
            what = f"it has a label now, by {current['by']}, and only who gave it can correct it"
        else:
            what = "it waits for an answer of somebody else"
        raise AnswerRefused("not blind", f"you have seen what others answered to sample {sample}: {what}")

    def _accepted(self, person: Person, one: Given, number: int) -> Json:
        question = self._home.inbox.question_of(one.sample, person.id)
        thoughts = question["thoughts"] if question and self.reveal(person) != "never" else []
        if one.label is None and one.reason == COLLEAGUE:
            thoughts = []
        return {"sample": one.sample, "answer": number, "thoughts": thoughts}

    def _given(self, person: Person, one: Json, batch: str | None) -> Given:
        reveal, sample = self.reveal(person), whole(one, "sample", None)
        again = reveal == "after" and self._home.inbox.was_answered(sample, person.id)
        return Given(
            sample=sample,
            label=None if one.get("label") is None else whole(one, "label", None),
            annotator=person.id,
            reason=text(one, "reason", ""),
            seconds=seconds(one, "seconds"),
            key=f"{person.id}:{text(one, 'key')}" if one.get("key") is not None else None,
            batch=batch,
            revise=one.get("revise") is True,
            saw_model=reveal == "before" or again,
            question=None if one.get("question") is None else whole(one, "question", None),
            unsure=one.get("unsure") is True,
            comment=text(one, "comment", "", LONGEST_COMMENT),
            decides=one.get("decide") is True,
        )

    def undo(self, person: Person, body: Json) -> Json:
        """Undo my last answers that were given together, or the one before answer ``before``."""
        before = None if body.get("before") is None else whole(body, "before", None)
        with self._home.database.transaction():
            undone = self._home.inbox.undo(person.id, before)
            for one in undone:
                if not one["stands"]:
                    self._home.audit.note(
                        person.name,
                        "undo",
                        one["sample"],
                        answer=one["answer"],
                        label=one["label"],
                        reason=one["reason"],
                    )
        for one in undone:
            if one["question"]:
                self._hide(person, one["question"])
        return {"undone": undone} | self.next(person, body)

    def history(self, person: Person, body: Json) -> Json:
        """My answers, newest first; with ``words``, those that hold them."""
        before, limit = str(body.get("before", 10**16 - 1)), str(body.get("limit", 30))
        if not NUMBER.fullmatch(before) or not NUMBER.fullmatch(limit):
            raise RequestRefused(400, "'before' and 'limit' must be whole numbers of at most 16 digits")
        words = text(body, "words", "")
        parts = words.lower().split()
        named = [
            str(number)
            for number, name in enumerate(self._home.card.classes)
            if parts and all(part in name.lower() for part in parts)
        ]
        many = min(max(int(limit), 1), MOST_AT_ONCE)
        rows = self._home.ledger.history(person.id, int(before), many, words, ",".join(named))
        for row in rows:
            row["name"] = self._plain_name(row["name"])
            row["thoughts"] = json.loads(row["thoughts"] or "[]") if self.reveal(person) != "never" else []
        return {"answers": rows}

    # the lead

    def team(self, person: Person, body: Json) -> Json:
        """Everybody's progress and agreement, and the policy."""
        self._lead(person)
        return overview(self._home, person.id)

    def policy(self, person: Person, body: Json) -> Json:
        """Set the policy."""
        self._lead(person)
        try:
            self._home.set_policy(body, person.name)
        except LabelError as error:
            raise RequestRefused(400, str(error)) from None
        return {}

    def link(self, person: Person, body: Json) -> Json:
        """A token for a person's link; it is told once, here."""
        self._lead(person)
        try:
            token = self._home.invite(text(body, "name"), person.name)
        except LabelError as error:
            raise RequestRefused(400, str(error)) from None
        return {"token": token}

    def revoke(self, person: Person, body: Json) -> Json:
        """End a person's sessions and unused links."""
        self._lead(person)
        name = text(body, "name")
        if " ".join(name.split()) == person.name:
            raise RequestRefused(400, "your own access ends when you leave, or by `chase label revoke`")
        try:
            return {"ended": self._home.revoke(name, person.name)}
        except LabelError as error:
            raise RequestRefused(400, str(error)) from None

    def _lead(self, person: Person) -> None:
        if person.role != "lead":
            raise RequestRefused(403, "only the lead sees the team, makes links and sets the policy", "role")

    def guide_picture(self, name: str) -> Any:
        """An example picture of the guidelines."""
        return self._guide.picture(name)
