// Signs of life. A sample on the screen stays with its person while they are there; before a colleague gets it, the
// page says so. An idle page stops asking and, where the lead has set a time, is locked.

import { call } from "./api.js";
import { notice } from "./ui.js";

const BEAT_MS = 30_000;
const QUIET_MS = 240_000;

export class Presence {
  constructor(options) {
    this.options = options;
    this.active = performance.now();
    this.warned = false;
    for (const name of ["keydown", "pointerdown", "pointermove", "wheel", "scroll"]) {
      document.addEventListener(name, () => this.touched(), { passive: true, capture: true });
    }
    this.timer = setInterval(() => this.beat(), BEAT_MS);
  }

  touched() {
    const back = this.warned;
    this.active = performance.now();
    this.warned = false;
    if (back) this.beat();
  }

  showing() {
    this.warned = false;
  }

  stop() {
    clearInterval(this.timer);
  }

  async beat() {
    const entry = this.options.on();
    if (!entry || document.hidden) return;
    const quiet = performance.now() - this.active > QUIET_MS;
    if (quiet && !this.warned) {
      this.warned = true;
      notice("Are you still there? This sample goes to a colleague in a minute.");
    }
    try {
      const result = await call("/api/next", { ...this.options.want(), idle: quiet });
      if (this.options.on() === entry) this.options.take(result);
    } catch (error) {
      this.options.failed(error);
    }
  }
}
