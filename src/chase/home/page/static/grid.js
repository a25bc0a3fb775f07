// Many samples at once: select some, give them all one label.

import { load, paint } from "./samples.js";

export class Grid {
  constructor(kind, alt) {
    this.kind = kind;
    this.alt = alt;
    this.tiles = document.getElementById("tiles");
    this.hint = document.getElementById("grid-hint");
    this.questions = [];
    this.selected = new Set();
    this.done = new Map();
    this.at = 0;
    this.anchor = 0;
    this.size = kind === "text" ? 12 : 24;
    document.body.classList.toggle("words", kind === "text");
    this.tiles.addEventListener("click", (event) => this.click(event));
    document.getElementById("select-all").addEventListener("click", () => this.selectAll());
  }

  show(questions) {
    this.questions = questions;
    this.selected.clear();
    this.done.clear();
    this.since = performance.now();
    this.at = this.anchor = 0;
    this.tiles.replaceChildren(...questions.map((question, place) => this.tile(question, place)));
    this.refresh();
  }

  tile(question, place) {
    const tile = document.createElement("div");
    tile.className = "tile";
    tile.setAttribute("role", "option");
    tile.dataset.place = place;
    tile.setAttribute("aria-label", `Sample ${place + 1} of ${this.questions.length}`);
    load(question.sample).then((sample) => {
      if (sample.text !== undefined) {
        const words = document.createElement("div");
        words.className = "snippet";
        words.textContent = sample.text.length > 220 ? `…${sample.text.slice(-220)}` : sample.text;
        tile.prepend(words);
      } else {
        const img = document.createElement("img");
        img.draggable = false;
        paint(img, sample, this.alt(question));
        tile.prepend(img);
      }
    }).catch((error) => { tile.textContent = error.message; });
    return tile;
  }

  get open() {
    return this.questions.map((_, place) => place).filter((place) => !this.done.has(place));
  }

  refresh() {
    [...this.tiles.children].forEach((tile, place) => {
      const finished = this.done.has(place);
      tile.classList.toggle("done", finished);
      tile.setAttribute("aria-selected", this.selected.has(place));
      tile.setAttribute("aria-disabled", finished);
      tile.tabIndex = place === this.at ? 0 : -1;
    });
    const count = this.selected.size;
    this.hint.textContent = count
      ? `${count} selected: choose their class`
      : `${matchMedia("(pointer: coarse)").matches ? "Tap" : "Select"} samples of one class, then choose the class.${
        matchMedia("(pointer: coarse)").matches ? "" : " Arrows move, Space selects, Shift selects a range."}`;
    document.getElementById("select-all").textContent =
      count && count === this.open.length ? "Select none" : "Select all";
  }

  click(event) {
    const tile = event.target.closest(".tile");
    if (!tile) return;
    const place = Number(tile.dataset.place);
    if (event.shiftKey) this.range(place);
    else this.toggle(place);
    this.focus(place);
  }

  toggle(place) {
    if (this.done.has(place)) return;
    if (this.selected.has(place)) this.selected.delete(place);
    else this.selected.add(place);
    this.anchor = place;
    this.refresh();
  }

  range(to) {
    const [low, high] = [Math.min(this.anchor, to), Math.max(this.anchor, to)];
    for (let place = low; place <= high; place += 1) if (!this.done.has(place)) this.selected.add(place);
    this.refresh();
  }

  selectAll() {
    const open = this.open;
    const all = this.selected.size === open.length;
    this.selected = new Set(all ? [] : open);
    this.refresh();
  }

  focus(place) {
    this.at = place;
    this.refresh();
    this.tiles.children[place]?.focus();
  }

  get columns() {
    const [first] = this.tiles.children;
    if (!first) return 1;
    return [...this.tiles.children].filter((tile) => tile.offsetTop === first.offsetTop).length;
  }

  key(event) {
    if (event.key === " " && !event.target.closest?.("button, input")) {
      this.toggle(this.at);
      return true;
    }
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "a") {
      this.selectAll();
      return true;
    }
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns }[event.key];
    if (step === undefined) return false;
    const next = this.at + step;
    if (next < 0 || next >= this.questions.length) return true;
    if (event.shiftKey) this.range(next);
    this.focus(next);
    if (!event.shiftKey) this.anchor = next;
    return true;
  }

  // The selected ones, or the one that has the focus; they get a badge and leave the selection. A tap on a class
  // with nothing selected takes none: it would label a sample that nobody pointed at.
  take(words) {
    const focused = this.tiles.contains(document.activeElement) ? [this.at] : [];
    const places = this.selected.size ? [...this.selected].sort((a, b) => a - b) : focused;
    const taken = places.filter((place) => !this.done.has(place));
    for (const place of taken) {
      this.done.set(place, words);
      const badge = document.createElement("span");
      badge.className = "badge";
      badge.textContent = words;
      this.tiles.children[place].append(badge);
    }
    this.selected.clear();
    const after = this.open.find((place) => place > this.at) ?? this.open[0];
    const seconds = (performance.now() - this.since) / 1000 / Math.max(1, taken.length);
    this.since = performance.now();
    if (after !== undefined && this.tiles.contains(document.activeElement)) this.focus(after);
    else if (after !== undefined) this.at = after;
    this.refresh();
    return { questions: taken.map((place) => this.questions[place]), seconds };
  }

  get finished() {
    return this.open.length === 0;
  }
}
