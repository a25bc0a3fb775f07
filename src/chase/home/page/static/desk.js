// What goes with an answer beside its class: "not sure", and a comment. Both begin empty for every sample.

import { $, say } from "./ui.js";

export class Desk {
  constructor() {
    this.begin();
    $("unsure").addEventListener("click", () => this.toggleUnsure());
    $("comment").addEventListener("click", () => this.openComment());
    $("comment-keep").addEventListener("click", () => this.keep());
    $("comment-text").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.keep();
    });
  }

  begin() {
    this.unsure = false;
    this.comment = "";
    this.draw();
  }

  draw() {
    $("unsure").setAttribute("aria-pressed", this.unsure);
    const parts = [];
    if (this.unsure) parts.push("Your next class is provisional: you are not sure.");
    if (this.comment) parts.push(`Comment: ${this.comment}`);
    $("pending").hidden = !parts.length;
    $("pending").textContent = parts.join(" ");
  }

  toggleUnsure() {
    this.unsure = !this.unsure;
    this.draw();
    say(this.unsure ? "Not sure: the next class is provisional." : "Sure again.");
  }

  openComment() {
    $("comment-text").value = this.comment;
    $("comment-dialog").showModal();
    $("comment-text").focus();
  }

  keep() {
    this.comment = $("comment-text").value.trim();
    $("comment-dialog").close();
    this.draw();
  }

  take() {
    const given = { unsure: this.unsure, comment: this.comment };
    this.begin();
    return given;
  }
}
