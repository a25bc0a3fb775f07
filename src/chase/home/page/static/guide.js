// Guidelines beside the task: the site's own Markdown file, shown as text, with example pictures per class.

import { call } from "./api.js";
import { $, make } from "./ui.js";

export class Guide {
  constructor(me) {
    this.me = me;
    this.loaded = false;
    $("open-guide").hidden = !me.guide;
    $("open-guide").addEventListener("click", () => this.toggle());
  }

  async toggle() {
    if (!this.me.guide) return;
    const dialog = $("guide-dialog");
    if (dialog.open) {
      dialog.close();
      return;
    }
    if (!this.loaded) await this.load();
    // Beside the task, not over it: a wide screen keeps the page usable while it is open.
    if (matchMedia("(min-width: 1100px)").matches) dialog.show();
    else dialog.showModal();
  }

  async load() {
    const { blocks, classes } = await call("/api/guide");
    $("guide").replaceChildren(...blocks.map(block), ...classes.flatMap((one) => this.examples(one)));
    this.loaded = true;
  }

  examples({ name, blocks, pictures }) {
    const row = make("div", { className: "examples" }, ...pictures.map((picture) => make("img", {
      src: `/api/guide/${encodeURIComponent(picture)}`, alt: `Example of ${name}`, loading: "lazy",
    })));
    return [make("h3", { textContent: name, dir: "auto" }), ...blocks.map(block), ...(pictures.length ? [row] : [])];
  }
}

// The server has split the Markdown into blocks; only text is set, so nothing in the file can run.
function block({ kind, lines }) {
  if (kind === "list") return make("ul", { dir: "auto" }, ...lines.map((line) => make("li", {}, ...inline(line))));
  return make(kind === "heading" ? "h3" : "p", { dir: "auto" }, ...inline(lines.join(" ")));
}

function inline(text) {
  return text.split(/(\*\*[^*]+\*\*|`[^`]+`)/).map((part) => {
    if (part.startsWith("**") && part.endsWith("**") && part.length > 4) return make("strong", { textContent: part.slice(2, -2) });
    if (part.startsWith("`") && part.endsWith("`") && part.length > 2) return make("code", { textContent: part.slice(1, -1) });
    return part;
  });
}
