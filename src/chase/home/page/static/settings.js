// A person's own settings. What the lead has set for everybody is shown and cannot be changed here.

import { call } from "./api.js";
import { $ } from "./ui.js";

function chosen(name, value) {
  for (const input of document.querySelectorAll(`[name=${name}]`)) input.checked = input.value === value;
}

export class Settings {
  constructor(me, options) {
    this.me = me;
    this.options = options;
    $("open-settings").addEventListener("click", () => this.open());
    $("leave").addEventListener("click", () => this.leave());
    $("keys-on").addEventListener("change", (event) => localStorage.setItem("chase.keys", event.target.checked ? "on" : "off"));
    $("read-all").addEventListener("change", (event) => localStorage.setItem("chase.read", event.target.checked ? "all" : ""));
    for (const input of document.querySelectorAll("[name=reveal]")) input.addEventListener("change", () => this.setReveal(input.value));
    for (const input of document.querySelectorAll("[name=theme]")) input.addEventListener("change", () => this.setTheme(input.value));
  }

  get readToEnd() {
    return this.me.policy.read_to_end || localStorage.getItem("chase.read") === "all";
  }

  open() {
    chosen("reveal", this.me.reveal);
    chosen("theme", localStorage.getItem("chase.theme") ?? "auto");
    const fixed = this.me.policy.reveal !== "own";
    for (const input of document.querySelectorAll("[name=reveal]")) input.disabled = fixed;
    $("reveal-policy").hidden = !fixed;
    $("keys-on").checked = localStorage.getItem("chase.keys") !== "off";
    $("read-all").checked = this.readToEnd;
    $("read-all").disabled = this.me.policy.read_to_end;
    $("settings-dialog").showModal();
  }

  async setReveal(value) {
    try {
      this.me.reveal = (await call("/api/settings", { reveal: value })).reveal;
      this.options.changed();
    } catch (error) {
      this.options.failed(error);
    }
  }

  setTheme(value) {
    localStorage.setItem("chase.theme", value);
    if (value === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = value;
  }

  async leave() {
    $("settings-dialog").close();
    try {
      await call("/api/leave", {});
    } finally {
      location.replace("/");
    }
  }
}
