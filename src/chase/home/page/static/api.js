// Requests to this machine, and the outbox: an answer is kept in the browser until the server has it.

export class Refusal extends Error {
  constructor(status, message, kind) {
    super(message);
    this.status = status;
    this.kind = kind;
  }
}

export const UNREACHABLE = "the page's server cannot be reached";

export async function call(path, body) {
  const options = body === undefined
    ? {}
    : { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(path, { ...options, credentials: "same-origin", cache: "no-store" });
  const text = await response.text();
  let value = {};
  try {
    value = JSON.parse(text);
  } catch {
    throw new Refusal(response.status, "the server's answer cannot be read", "unreadable");
  }
  if (!response.ok) throw new Refusal(response.status, value.error ?? "refused", value.kind ?? "");
  return value;
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function tabName() {
  let name = sessionStorage.getItem("chase.tab");
  if (!name) {
    name = [...crypto.getRandomValues(new Uint8Array(8))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    sessionStorage.setItem("chase.tab", name);
  }
  return name;
}

// Browsers without locks (old ones, or a page that is not served safely) run the work unguarded.
function locked(name, options, work) {
  return navigator.locks ? navigator.locks.request(name, options, work) : work({});
}

export class Outbox {
  // Sends one thing after the other. What cannot be sent stays, survives a reload and is tried again; every
  // answer carries a key of its own, so one that arrived although its receipt was lost is not stored twice.
  // It is kept by home, annotator and tab: another home at the same address must not get these answers, and two tabs
  // must not write over each other's. What a closed tab left behind is taken over by the next one that is opened.
  constructor(owner, { delivered, refused, trouble }) {
    this.root = `chase.outbox.${owner}`;
    this.place = `${this.root}.${tabName()}`;
    this.handlers = { delivered, refused, trouble };
    this.running = null;
    this.waiting = [];
  }

  async open() {
    await this.claimPlace();
    this.waiting = [...this.read(this.place), ...this.waiting];
    for (const place of [this.root, ...this.left()]) await this.adopt(place);
    this.keep();
  }

  // Held for as long as the tab lives. A duplicated tab has the same name and takes another.
  claimPlace() {
    return new Promise((resolve) => {
      locked(this.place, { ifAvailable: true }, (lock) => {
        if (lock === null) {
          sessionStorage.removeItem("chase.tab");
          this.place = `${this.root}.${tabName()}`;
          resolve(this.claimPlace());
          return undefined;
        }
        resolve();
        return navigator.locks ? new Promise(() => {}) : undefined;
      });
    });
  }

  left() {
    return Object.keys(localStorage).filter((name) => name.startsWith(`${this.root}.`) && name !== this.place);
  }

  adopt(place) {
    return locked(place, { ifAvailable: true }, (lock) => {
      if (lock === null || localStorage.getItem(place) === null) return;
      this.waiting = [...this.read(place), ...this.waiting];
      this.keep();
      localStorage.removeItem(place);
    });
  }

  read(place) {
    try {
      const found = JSON.parse(localStorage.getItem(place) ?? "[]");
      return Array.isArray(found) ? found : [];
    } catch {
      return [];
    }
  }

  get size() {
    return this.waiting.length;
  }

  keep() {
    if (this.waiting.length) localStorage.setItem(this.place, JSON.stringify(this.waiting));
    else localStorage.removeItem(this.place);
  }

  put(body) {
    this.waiting.push(body);
    this.keep();
    return this.flush();
  }

  flush() {
    this.running ??= this.send().finally(() => { this.running = null; });
    return this.running;
  }

  async send() {
    let tries = 0;
    while (this.waiting.length) {
      const body = this.waiting[0];
      try {
        const result = await call("/api/answer", body);
        this.waiting.shift();
        this.keep();
        if (tries) this.handlers.trouble(null);
        tries = 0;
        this.handlers.delivered(result, body, this.waiting.length);
      } catch (error) {
        if (error instanceof Refusal && error.status === 401) {
          this.handlers.refused(error, body);
          return;
        }
        const passing = error instanceof Refusal && (error.status === 408 || error.status === 429 || error.kind === "unreadable");
        if (error instanceof Refusal && error.status < 500 && !passing) {
          this.waiting.shift();
          this.keep();
          this.handlers.refused(error, body);
          continue;
        }
        tries += 1;
        this.handlers.trouble(this.waiting.length, error instanceof Refusal && error.kind === "storage" ? error.message : UNREACHABLE);
        await pause(Math.min(5000, 300 * 2 ** Math.min(tries, 5)));
      }
    }
  }
}
