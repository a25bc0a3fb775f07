// Requests to this machine, and the outbox: an answer is kept in the browser until the server has it.

export class Refusal extends Error {
  constructor(status, message, kind) {
    super(message);
    this.status = status;
    this.kind = kind;
  }
}

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

export class Outbox {
  // Sends one thing after the other. What cannot be sent stays, survives a reload and is tried again; every
  // answer carries a key of its own, so one that arrived although its receipt was lost is not taken in twice.
  // It is kept by home and annotator: another home at the same address must not get these answers.
  constructor(owner, { delivered, refused, trouble }) {
    this.place = `chase.outbox.${owner}`;
    this.waiting = JSON.parse(localStorage.getItem(this.place) ?? "[]");
    this.handlers = { delivered, refused, trouble };
    this.running = null;
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
        if (error instanceof Refusal && error.status < 500 && error.kind !== "unreadable") {
          this.waiting.shift();
          this.keep();
          this.handlers.refused(error, body);
          continue;
        }
        tries += 1;
        this.handlers.trouble(this.waiting.length);
        await pause(Math.min(5000, 300 * 2 ** Math.min(tries, 5)));
      }
    }
  }
}
