// What the lead sees: how far everybody is, how well people agree, and the policy for all.

import { call } from "./api.js";
import { $, make, notice } from "./ui.js";

const share = (value) => (value === null || value === undefined ? "–" : `${Math.round(100 * value)} %`);
const coefficient = (value) => (value === null || value === undefined ? "–" : value.toFixed(2));

function between(one) {
  if (one.value === null) return "–";
  const range = one.low === null ? "" : ` (${coefficient(one.low)} to ${coefficient(one.high)})`;
  return `${coefficient(one.value)}${range}`;
}

function table(caption, heads, rows) {
  const head = make("tr", {}, ...heads.map((words) => make("th", { textContent: words, scope: "col" })));
  const body = rows.map((cells) => make("tr", {}, ...cells.map((cell, place) => {
    const words = cell instanceof Element ? "" : cell.words ?? cell;
    const element = make(place ? "td" : "th", { textContent: words, className: cell.warn ? "warn" : "" });
    if (cell instanceof Element) element.append(cell);
    if (!place) element.scope = "row";
    return element;
  })));
  const scroll = make("div", { className: "scroll", tabIndex: 0 }, make("table", {}, make("caption", { textContent: caption }), make("thead", {}, head), make("tbody", {}, ...body)));
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", caption);
  return scroll;
}

// Commands stand between backquotes.
function warning(words) {
  const parts = words.split("`").map((part, place) => (place % 2 ? make("code", { textContent: part }) : part));
  return make("p", { className: "warn" }, ...parts);
}

export class Team {
  constructor(me, options) {
    this.me = me;
    this.options = options;
    this.place = $("team");
  }

  async show() {
    try {
      const found = await call("/api/team");
      this.place.replaceChildren(
        make("h1", { textContent: "Team" }), this.summary(found), ...found.warnings.map(warning), this.people(found), this.access(), ...this.agreement(found), this.policy(found),
      );
      this.place.hidden = false;
    } catch (error) {
      this.options.failed(error);
    }
  }

  summary({ progress, conflicts, unsure, waiting }) {
    const words = [`${progress.answered} labelled`, `${progress.skipped} set aside`, `${progress.open} to do`,
      `${waiting} wait for another opinion`, `${conflicts} in conflict`, `${unsure} not sure`];
    return make("p", { textContent: words.join(" · ") });
  }

  people({ people, gold_warning: least }) {
    const rows = people.map((one) => [
      one.name, one.role, `${one.answers}`, one.goal ? `${one.today} of ${one.goal}` : `${one.today}`,
      one.seconds === null ? "–" : one.seconds.toFixed(1), share(one.agreement),
      { words: one.gold_asked ? `${share(one.gold)} of ${one.gold_asked}` : "–", warn: one.gold !== null && one.gold < least },
      `${one.unsure}`, this.entry(one),
    ]);
    return table("Each person", ["Name", "Role", "Answers", "Today", "Seconds per label", "Same as the label", "Gold", "Not sure", "Access"], rows);
  }

  // A new link lets somebody in whose page is locked, or on another device.
  entry({ name, access }) {
    const link = make("button", { type: "button", textContent: "New link" });
    link.setAttribute("aria-label", `New link for ${name}`);
    link.addEventListener("click", () => this.link(name));
    if (name === this.me.annotator) return make("span", { className: "entry" }, link);
    if (!access) return make("span", { className: "entry" }, link, make("span", { className: "tag", textContent: "no access" }));
    const end = make("button", { type: "button", textContent: "End access" });
    end.setAttribute("aria-label", `End access of ${name}`);
    end.addEventListener("click", () => this.revoke(name));
    return make("span", { className: "entry" }, link, end);
  }

  access() {
    const name = make("input", { id: "new-person", required: true, maxLength: 80, autocomplete: "off" });
    const label = make("label", { htmlFor: "new-person", textContent: "A link for somebody new" });
    const form = make("form", { className: "invite" }, label, name, make("button", { type: "submit", textContent: "Make a link" }));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.link(name.value);
    });
    this.shown = make("div", { className: "new-link", hidden: true });
    this.shown.setAttribute("role", "status");
    return make("div", { className: "access" }, form, this.shown);
  }

  async link(name) {
    try {
      const { token } = await call("/api/link", { name });
      const url = `${location.origin}/#token=${token}`;
      const words = `Link for ${name}. It is shown only now, opens the page once, on one device, and is good for a day. Send it to nobody else.`;
      const field = make("input", { type: "text", readOnly: true, value: url, id: "new-link" });
      field.setAttribute("aria-label", `Link for ${name}`);
      const copy = make("button", { type: "button", textContent: "Copy" });
      copy.addEventListener("click", () => this.copy(field));
      const hide = make("button", { type: "button", textContent: "Hide" });
      hide.addEventListener("click", () => { this.shown.replaceChildren(); this.shown.hidden = true; });
      this.shown.replaceChildren(make("p", { textContent: words }), field, copy, hide);
      this.shown.hidden = false;
      field.focus();
      field.select();
    } catch (error) {
      this.options.failed(error);
    }
  }

  async copy(field) {
    field.select();
    try {
      await navigator.clipboard.writeText(field.value);
      notice("The link is copied.");
    } catch {
      notice("The browser did not allow copying: press Ctrl+C.");
    }
  }

  async revoke(name) {
    if (!confirm(`End all sessions and unused links of ${name}? Their answers stay.`)) return;
    try {
      await call("/api/revoke", { name });
      await this.show();
      notice(`${name} needs a new link to enter again.`);
    } catch (error) {
      this.options.failed(error);
    }
  }

  agreement({ agreement }) {
    if (!agreement.samples) return [make("p", { className: "soft", textContent: "No sample has answers of two people yet, so there is no agreement to show." })];
    const head = make("p", { textContent: `Krippendorff's alpha ${between(agreement.alpha)} over ${agreement.samples} samples with two or more answers. 1 is full agreement, 0 is chance; the range is a 95 % interval.` });
    const pairs = agreement.pairs.map((one) => [`${one.first} and ${one.second}`, `${one.samples}`, share(one.same), between(one.kappa)]);
    const classes = agreement.classes.map((one) => [one.name, `${one.samples}`, between(one.alpha)]);
    return [make("h2", { textContent: "Agreement" }), head,
      table("Cohen's kappa of each pair", ["Pair", "Samples", "Same answer", "Kappa"], pairs),
      table("Krippendorff's alpha of each class against the others", ["Class", "Samples", "Alpha"], classes)];
  }

  policy({ policy, fields }) {
    const inputs = fields.map((field) => this.field(field, policy[field.name]));
    const save = make("button", { type: "submit", textContent: "Save the policy" });
    const form = make("form", { className: "policy" }, make("h2", { textContent: "Policy" }), ...inputs, save);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.save(form, fields);
    });
    return form;
  }

  field(field, value) {
    const id = `policy-${field.name}`;
    let input;
    if (field.choices) {
      input = make("select", { id, name: field.name }, ...field.choices.map((one) => make("option", { value: one, textContent: one, selected: one === value })));
    } else if (field.type === "bool") {
      input = make("input", { id, name: field.name, type: "checkbox", checked: value });
    } else {
      input = make("input", { id, name: field.name, type: "number", value, min: field.low, max: field.high, step: field.type === "float" ? "any" : 1 });
    }
    return make("div", { className: "field" }, make("label", { htmlFor: id, textContent: field.help }), input);
  }

  async save(form, fields) {
    const body = {};
    for (const { name, type } of fields) {
      const input = form.elements[name];
      body[name] = type === "bool" ? input.checked : type === "str" ? input.value : Number(input.value);
    }
    try {
      await call("/api/policy", body);
      this.options.saved(body);
      notice("The policy is saved. It applies from the next question on.");
      this.show();
    } catch (error) {
      this.options.failed(error);
    }
  }
}
