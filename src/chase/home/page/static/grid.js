// Many samples at once: select some, give them all one label. A tile takes a label once its sample is on the screen.

import { HOVER, load, paint, snippet, Unreadable } from "./samples.js";
import { make, painted, plural } from "./ui.js";

const RETRY_MS = 2000;
const coarse = () => matchMedia("(pointer: coarse)").matches;

export class Grid {
  constructor(kind, predictsNext, alt) {
    this.predictsNext = predictsNext;
    this.alt = alt;
    this.tiles = document.getElementById("tiles");
    this.hint = document.getElementById("grid-hint");
    this.questions = [];
    this.selected = new Set();
    this.done = new Map();
    this.armed = new Map();
    this.broken = new Set();
    this.at = 0;
    this.anchor = 0;
    this.size = kind === "text" ? 12 : 24;
    document.body.classList.toggle("words", kind === "text");
    this.tiles.addEventListener("click", (event) => this.click(event));
    document.getElementById("select-all").addEventListener("click", () => this.selectAll());
  }

  show(questions) {
    this.questions = questions;
    for (const one of [this.selected, this.done, this.armed, this.broken]) one.clear();
    this.since = performance.now();
    this.at = this.anchor = 0;
    this.tiles.replaceChildren(...questions.map((question, place) => this.tile(question, place)));
    questions.forEach((question, place) => this.fill(question, place, this.tiles.children[place]));
    this.refresh();
  }

  tile(question, place) {
    const tile = make("div", { className: "tile loading" });
    tile.setAttribute("role", "option");
    tile.dataset.place = place;
    tile.setAttribute("aria-label", `Sample ${place + 1} of ${this.questions.length}`);
    return tile;
  }

  async fill(question, place, tile) {
    const gone = () => !tile.isConnected;
    try {
      const sample = await load(question.sample);
      if (gone()) return;
      await this.draw(question, sample, tile);
      await this.inView(tile);
      await painted();
      if (gone()) return;
      tile.classList.remove("loading");
      this.armed.set(place, sample.seen);
      this.refresh();
    } catch (error) {
      if (gone()) return;
      if (error instanceof Unreadable || error.name === "EncodingError") this.markBroken(place, tile);
      else setTimeout(() => { if (!gone()) this.fill(question, place, tile); }, RETRY_MS);
    }
  }

  async draw(question, sample, tile) {
    if (sample.text !== undefined) {
      const words = make("div", { className: `snippet${this.predictsNext ? " end" : ""}`, dir: "auto", title: sample.text.slice(0, HOVER) });
      words.textContent = snippet(sample.text, this.predictsNext);
      tile.prepend(words);
      return;
    }
    const img = make("img", { draggable: false });
    paint(img, sample, this.alt(question));
    await img.decode();
    tile.prepend(img);
  }

  // A tile below the edge of the screen has not been seen: it waits until it was scrolled into view.
  inView(tile) {
    return new Promise((resolve) => {
      const watcher = new IntersectionObserver((entries) => {
        if (!entries.some((entry) => entry.isIntersecting)) return;
        watcher.disconnect();
        resolve();
      }, { threshold: 0.5 });
      watcher.observe(tile);
    });
  }

  markBroken(place, tile) {
    this.broken.add(place);
    tile.classList.remove("loading");
    tile.classList.add("unreadable");
    tile.replaceChildren(make("span", { className: "cross", textContent: "✕ cannot be shown" }));
    this.refresh();
  }

  get open() {
    return this.questions.map((_, place) => place).filter((place) => !this.done.has(place));
  }

  get labelable() {
    return this.open.filter((place) => this.armed.has(place));
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
    this.hint.textContent = count ? `${count} selected: choose ${count === 1 ? "its" : "their"} class` : this.advice();
    document.getElementById("select-all").textContent =
      count && count === this.labelable.length ? "Select none" : "Select all";
  }

  advice() {
    const waiting = this.open.length - this.labelable.length - [...this.broken].filter((place) => !this.done.has(place)).length;
    const begin = `${coarse() ? "Tap" : "Select"} samples of one class, then choose the class.`;
    if (waiting) return `${begin} ${plural(waiting, "sample")} not looked at yet.`;
    return coarse() ? begin : `${begin} Arrows move, Space selects, Shift selects a range.`;
  }

  click(event) {
    const tile = event.target.closest(".tile");
    if (!tile) return;
    const place = Number(tile.dataset.place);
    if (event.shiftKey) this.range(place);
    else this.toggle(place);
    this.focus(place);
  }

  selectable(place) {
    return !this.done.has(place) && (this.armed.has(place) || this.broken.has(place));
  }

  toggle(place) {
    if (!this.selectable(place)) return;
    if (this.selected.has(place)) this.selected.delete(place);
    else this.selected.add(place);
    this.anchor = place;
    this.refresh();
  }

  range(to) {
    const [low, high] = [Math.min(this.anchor, to), Math.max(this.anchor, to)];
    for (let place = low; place <= high; place += 1) if (this.armed.has(place) && !this.done.has(place)) this.selected.add(place);
    this.refresh();
  }

  selectAll() {
    const open = this.labelable;
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
  // with nothing selected takes none: it would label a sample that nobody pointed at. A picture that cannot be shown
  // can only be a bad sample; `left` counts what was selected and not taken.
  take(words, isBad) {
    const focused = this.tiles.contains(document.activeElement) ? [this.at] : [];
    const places = (this.selected.size ? [...this.selected].sort((a, b) => a - b) : focused).filter((place) => !this.done.has(place));
    const taken = places.filter((place) => this.armed.has(place) || (isBad && this.broken.has(place)));
    for (const place of taken) {
      this.done.set(place, words);
      this.tiles.children[place].append(make("span", { className: "badge", textContent: words }));
    }
    this.selected.clear();
    const after = this.open.find((place) => place > this.at) ?? this.open[0];
    const seconds = (performance.now() - this.since) / 1000 / Math.max(1, taken.length);
    if (taken.length) this.since = performance.now();
    if (taken.length && after !== undefined && this.tiles.contains(document.activeElement)) this.focus(after);
    else if (taken.length && after !== undefined) this.at = after;
    this.refresh();
    return {
      taken: taken.map((place) => ({ question: this.questions[place], seen: this.armed.get(place) ?? "" })),
      left: places.length - taken.length,
      seconds,
    };
  }

  // Tiles that are not this person's any longer; returns how many.
  giveUp(keeps) {
    const lost = this.open.filter((place) => !keeps(this.questions[place]));
    for (const place of lost) {
      this.done.set(place, "");
      this.selected.delete(place);
      this.tiles.children[place].append(make("span", { className: "badge gone", textContent: "with a colleague" }));
    }
    if (lost.length) this.refresh();
    return lost.length;
  }

  get finished() {
    return this.open.length === 0;
  }
}
