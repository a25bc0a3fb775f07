// A person's own answers: found by words, corrected by choosing one.

import { call } from "./api.js";
import { HOVER, load, paint, snippet } from "./samples.js";
import { $, make, when } from "./ui.js";

const LINES = 30;

export class History {
  constructor(me, options) {
    this.me = me;
    this.options = options;
    this.words = "";
    $("open-history").addEventListener("click", () => this.open());
    $("history-search").addEventListener("input", () => {
      clearTimeout(this.later);
      this.later = setTimeout(() => this.search($("history-search").value.trim()), 200);
    });
  }

  async open() {
    $("history-search").value = "";
    await this.search("");
    $("history-dialog").showModal();
  }

  async search(words) {
    this.words = words;
    const lines = await this.fetch(2 ** 53);
    if (lines === null || words !== this.words) return;
    $("history").replaceChildren();
    this.append(lines);
  }

  async fetch(before) {
    try {
      await this.options.flush();
      const { answers } = await call(`/api/history?before=${before}&limit=${LINES}&words=${encodeURIComponent(this.words)}`);
      return answers;
    } catch (error) {
      this.options.failed(error);
      return null;
    }
  }

  append(answers) {
    for (const one of answers) $("history").append(this.line(one));
    if (!$("history").children.length) {
      const words = this.words ? "None of your answers has these words." : "You have not answered yet.";
      $("history").append(make("li", { className: "soft", textContent: words }));
    }
    $("more-history").hidden = answers.length < LINES;
    $("more-history").onclick = async () => {
      const more = await this.fetch(answers.at(-1).answer);
      if (more) this.append(more);
    };
  }

  line(one) {
    const words = this.options.nameOf(one.label, one.reason);
    const isText = this.me.kind === "text";
    const small = make(isText ? "span" : "img", { className: isText ? "snip" : "", alt: "", dir: "auto" });
    const about = make("span", { className: "what" }, make("strong", { textContent: words }));
    if (one.unsure) about.append(make("span", { className: "tag", textContent: "not sure" }));
    about.append(make("span", { className: "soft", textContent: one.name || `sample ${one.sample}` }));
    if (one.comment) about.append(make("q", { textContent: one.comment, dir: "auto" }));
    load(one.sample).then((sample) => {
      if (sample.text === undefined) paint(small, sample, "");
      else {
        small.textContent = snippet(sample.text, this.me.predicts_next, 60);
        button.title = sample.text.slice(0, HOVER);
      }
    }).catch(() => { small.classList.add("gone"); });
    const button = make("button", { type: "button" }, small, about, when(one.answered_at));
    button.addEventListener("click", () => {
      $("history-dialog").close();
      this.options.choose(one);
    });
    return make("li", {}, button);
  }
}
