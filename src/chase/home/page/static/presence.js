// Signs of life. A sample on the screen stays with its person while they are there; before a colleague gets it, the
// page says so. Where the lead has set a time, an idle page is locked: the session ends and nothing stays in view.

import { call } from "./api.js";
import { ask } from "./ui.js";

const BEAT_MS = 30_000;
const LOOK_MS = 1000;
const QUIET_MS = 240_000; // the server keeps a sample for five minutes after the last sign of life

export class Presence {
  constructor(options) {
    this.options = options;
    this.active = this.beaten = Date.now(); // not performance.now(): it may stop while a laptop sleeps
    this.moved = this.warned = false;
    this.title = document.title;
    for (const name of ["keydown", "pointerdown", "pointermove", "wheel", "scroll"]) {
      document.addEventListener(name, () => this.touched(), { passive: true, capture: true });
    }
    document.addEventListener("visibilitychange", () => { if (!document.hidden) this.look(true); });
    this.timer = setInterval(() => this.look(), LOOK_MS);
  }

  // The first touch after a pause longer than allowed must not unlock anything: look before it counts.
  touched() {
    if (this.lockIfIdle()) return;
    const back = this.warned;
    this.active = Date.now();
    this.moved = true;
    if (back) this.look(true);
  }

  stop() {
    clearInterval(this.timer);
    this.stopped = true;
    this.warn(false);
  }

  get quiet() {
    return Date.now() - this.active > QUIET_MS;
  }

  warn(on) {
    if (on === this.warned) return;
    this.warned = on;
    document.title = on ? "Are you still there?" : this.title;
    ask(on ? "Are you still there? What is on your screen goes to a colleague in a minute." : null);
  }

  lockIfIdle() {
    const minutes = this.options.idleMinutes();
    if (this.stopped || !minutes || Date.now() - this.active < 60_000 * minutes) return this.stopped === true;
    this.stop();
    this.options.lock(minutes);
    return true;
  }

  look(now = false) {
    if (this.lockIfIdle()) return;
    const on = this.options.on();
    this.warn(this.quiet && on !== null);
    if (!now && Date.now() - this.beaten < BEAT_MS) return;
    if (on !== null) this.beat(on);
    else if (this.moved && this.options.idleMinutes()) this.live();
  }

  // Nothing here is anybody's own, but the person is at work and the session must not end.
  async live() {
    this.beaten = Date.now();
    this.moved = false;
    await call("/api/me").catch((error) => this.options.failed(error));
  }

  async beat(on) {
    this.beaten = Date.now();
    const still = !this.moved;
    this.moved = false;
    try {
      const result = await call("/api/next", { ...this.options.want(), idle: this.quiet, still });
      if (this.options.on() === on) this.options.take(result, true);
    } catch (error) {
      this.options.failed(error);
    }
  }
}
