// One sample on the stage. An answer is accepted only for a sample that is "armed": fetched, decoded and drawn on the
// screen. A new sample clears the frame at once, so what is visible is always what would be labelled.

import { load, Unreadable } from "./samples.js";
import { $, painted } from "./ui.js";
import { Reader } from "./reader.js";
import { Viewer } from "./viewer.js";

const SPINNER_MS = 150;
const RETRY_MS = 2000;

export class Stage {
  constructor(options) {
    this.options = options;
    this.ticket = 0;
    this.entry = this.armed = null;
    this.viewer = new Viewer((entry, low, high) => this.rewindow(entry, low, high));
    this.reader = new Reader();
    $("bad-sample").addEventListener("click", () => options.broken());
  }

  clear() {
    this.ticket += 1;
    this.entry = this.armed = this.sample = null;
    clearTimeout(this.later);
    clearTimeout(this.again);
    this.viewer.clear();
    this.reader.clear();
    for (const id of ["viewer", "text", "afar", "broken", "loading", "tools"]) $(id).hidden = true;
    $("afar").removeAttribute("src");
    this.state("empty");
  }

  state(name) {
    $("figure").dataset.state = name;
  }

  get isBroken() {
    return $("figure").dataset.state === "broken";
  }

  // Whether an answer may be given for this entry now.
  ready(entry) {
    return this.armed !== null && this.armed === entry;
  }

  async show(entry) {
    this.clear();
    this.entry = entry;
    const ticket = this.ticket;
    this.state("loading");
    this.later = setTimeout(() => { $("loading").hidden = false; }, SPINNER_MS);
    try {
      const sample = await load(entry.sample);
      if (ticket !== this.ticket) return;
      await this.draw(entry, sample);
      await painted();
      if (ticket !== this.ticket) return;
      this.arm(entry, sample);
    } catch (error) {
      if (ticket === this.ticket) this.failed(entry, error);
    }
  }

  arm(entry, sample) {
    clearTimeout(this.later);
    $("loading").hidden = true;
    this.armed = entry;
    this.sample = sample;
    this.state("ready");
    this.options.armed(entry);
  }

  async draw(entry, sample) {
    clearTimeout(this.later);
    $("loading").hidden = true;
    if (sample.text !== undefined) {
      this.reader.show(sample.text, this.options.predictsNext);
      return;
    }
    await this.viewer.show(entry, sample, this.options.alt(entry));
    // A small picture blown up to blocks is easier to make out from a distance.
    $("afar").hidden = Math.max(sample.width, sample.height) > 64;
    if (!$("afar").hidden) $("afar").src = sample.url;
  }

  failed(entry, error) {
    clearTimeout(this.later);
    this.viewer.clear();
    $("viewer").hidden = $("tools").hidden = true;
    if (error instanceof Unreadable || error.name === "EncodingError") {
      $("loading").hidden = true;
      $("broken").hidden = false;
      $("broken-why").textContent = `${error.message}.`;
      this.state("broken");
      this.options.unreadable(entry);
      return;
    }
    $("loading").hidden = false;
    this.again = setTimeout(() => { if (this.entry === entry) this.show(entry); }, RETRY_MS);
  }

  // The same sample in another window of grey values: not armed again until that picture is on the screen.
  async rewindow(entry, low, high) {
    if (this.entry !== entry) return;
    const ticket = (this.ticket += 1);
    this.armed = null;
    this.state("loading");
    try {
      const sample = await load(entry.sample, low, high);
      if (ticket !== this.ticket) return;
      await this.viewer.replace(sample);
      await painted();
      if (ticket === this.ticket) this.arm(entry, sample);
    } catch (error) {
      if (ticket === this.ticket) this.failed(entry, error);
    }
  }

  // Why no answer is taken now, in words; null if one is.
  refusal(entry) {
    if (this.isBroken) return "This picture cannot be shown, so it cannot be labelled. Record it as a bad sample.";
    if (!this.ready(entry)) return "Wait for the sample: it is not on the screen yet.";
    if (this.options.readToEnd() && !this.reader.finished) return "Read the text to its end first.";
    return null;
  }

  get seen() {
    return this.sample?.seen ?? "";
  }

  key(event) {
    if (!$("text").hidden) return this.reader.key(event);
    if (!$("viewer").hidden) return this.viewer.key(event);
    return false;
  }
}
