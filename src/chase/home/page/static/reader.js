// A text on the stage: keys scroll it without a click, and a sign says that more follows.

import { $, make } from "./ui.js";

export class Reader {
  constructor() {
    this.box = $("text");
    this.end = true;
    this.box.addEventListener("scroll", () => this.measure(), { passive: true });
    new ResizeObserver(() => this.measure()).observe(this.box);
    $("more-text").addEventListener("click", () => this.scroll(1));
  }

  clear() {
    this.box.replaceChildren();
    this.end = false;
    $("more-text").hidden = true;
  }

  show(text, predictsNext) {
    this.clear();
    this.box.hidden = false;
    this.box.classList.toggle("typed", predictsNext);
    this.box.append(text);
    if (predictsNext) {
      const slot = make("span", { className: "slot", textContent: "?" });
      slot.setAttribute("role", "img");
      slot.setAttribute("aria-label", "the character to predict");
      this.box.append(slot);
    }
    this.box.scrollTop = predictsNext ? this.box.scrollHeight : 0;
    this.measure();
  }

  get finished() {
    return this.end;
  }

  measure() {
    const { scrollTop, clientHeight, scrollHeight } = this.box;
    if (this.box.hidden || !clientHeight) return;
    const left = scrollHeight - clientHeight - scrollTop;
    if (left <= 4) this.end = true;
    $("more-text").hidden = left <= 4;
    if (left > 4) {
      const share = Math.round((100 * (scrollTop + clientHeight)) / scrollHeight);
      $("more-text").textContent = `More text follows (${share} % shown) ↓`;
    }
  }

  scroll(pages) {
    const step = pages * Math.max(40, this.box.clientHeight * 0.85);
    this.box.scrollBy({ top: step, behavior: "instant" });
    this.measure();
  }

  key(event) {
    const moves = { PageDown: 1, PageUp: -1, ArrowDown: 0.15, ArrowUp: -0.15, " ": event.shiftKey ? -1 : 1, End: 1e6, Home: -1e6 };
    if (!(event.key in moves) || this.box.scrollHeight <= this.box.clientHeight) return false;
    this.scroll(moves[event.key]);
    return true;
  }
}
