// What the page says about a sample: why it was asked, what the model predicted, what others said, how far we are.

import { visible } from "./classes.js";
import { $, make, plural } from "./ui.js";

export function why(question) {
  if (!question.strategy) return "";
  const parts = question.round ? [`Asked in round ${question.round} by ${question.strategy}`] : [`Asked by ${question.strategy}`];
  if (question.ev > 0) parts.push(`its prediction changed ${plural(question.ev, "time")} in training (EV ${question.ev})`);
  if (question.score !== null && question.score !== question.ev) parts.push(`score ${Number(question.score.toPrecision(3))}`);
  return parts.join("; ");
}

export function drawAbout(entry) {
  $("file-name").textContent = entry.name ?? "";
  const columns = Object.entries(entry.about ?? {});
  $("about").hidden = !columns.length;
  $("about").replaceChildren(...columns.map(([name, value]) => make("div", {}, make("dt", { textContent: name }), make("dd", { textContent: value }))));
}

export function drawThoughts(place, thoughts, classes, label = undefined, heading = "The model predicted") {
  place.replaceChildren();
  place.hidden = !thoughts?.length;
  if (!thoughts?.length) return;
  place.append(make("p", { className: "soft", textContent: heading }));
  for (const [number, chance] of thoughts) {
    const bar = document.createElement("b");
    bar.style.width = `${Math.round(100 * chance)}%`;
    place.append(make("div", { className: `row${number === label ? " same" : ""}` },
      make("span", { textContent: visible(classes[number]) }),
      make("i", {}, bar),
      make("span", { textContent: `${Math.round(100 * chance)} %` })));
  }
}

// All answers to a sample, for the adjudicator alone.
export function drawOpinions(answers, nameOf) {
  $("opinions").hidden = !answers?.length;
  $("opinions").replaceChildren();
  if (!answers?.length) return;
  const lines = answers.map((one) => {
    const line = make("li", {}, make("strong", { textContent: nameOf(one.label, one.reason) }), ` ${one.by}`);
    if (one.unsure) line.append(make("span", { className: "tag", textContent: "not sure" }));
    if (one.comment) line.append(make("q", { textContent: one.comment, dir: "auto" }));
    return line;
  });
  $("opinions").append(make("p", { className: "soft", textContent: "What was answered" }), make("ul", {}, ...lines));
}

export function drawProgress(progress, goal) {
  $("progress").hidden = false;
  const { round, round_done: done, round_asked: asked } = progress;
  $("round-text").textContent = asked ? `Round ${round}: ${done} of ${asked}` : "Nothing asked yet";
  const aside = progress.skipped ? ` · ${progress.skipped} set aside` : "";
  const today = goal ? ` · ${progress.today} of ${goal} today` : "";
  $("all-text").textContent = `${progress.answered} labelled in all${aside} · ${progress.open} to do${today}`;
  $("fill").style.width = asked ? `${(100 * done) / asked}%` : "0";
  $("meter").setAttribute("aria-valuemax", asked);
  $("meter").setAttribute("aria-valuenow", done);
}
