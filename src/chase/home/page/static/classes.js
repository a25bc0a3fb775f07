// The classes: a button each with its key, or a list to search where there are many.

const LETTERS = [..."abcdefghijklmnopqrstuvwxyz"];
const NUMBERS = [..."123456789"];
const SPOKEN = { " ": "space", "\n": "new line", "\t": "tab" };

export function visible(name) {
  // What is shown for a class whose name cannot be seen.
  return SPOKEN[name] ?? name;
}

export function keysFor(names) {
  // Classes that are characters are their own keys; else 1-9, then letters; none where there are too many.
  const single = names.every((name) => [...name].length === 1 && name !== "\t");
  if (single && new Set(names).size === names.length) return names.map((name) => (name === "\n" ? "Enter" : name));
  const keys = [...NUMBERS, ...LETTERS];
  return names.length <= keys.length ? keys.slice(0, names.length) : null;
}

function rank(name, wanted) {
  // 0 is best; null does not match. "cat" finds cat, then catfish, then polecat; of several words each begins one
  // of the name's own words: "fem l" finds "Femur left".
  const low = name.toLowerCase();
  const sought = wanted.toLowerCase();
  if (name === wanted) return 0;
  if (low === sought) return 1;
  if (low.startsWith(sought)) return 2;
  const words = low.split(/[^\p{L}\p{N}]+/u);
  if (words.some((word) => word.startsWith(sought))) return 3;
  if (low.includes(sought)) return 4;
  const parts = sought.split(/\s+/);
  if (parts.length > 1 && parts.every((part) => words.some((word) => word.startsWith(part)))) return 5;
  if (parts.length > 1 && parts.every((part) => low.includes(part))) return 6;
  return null;
}

export function search(names, wanted) {
  // Class numbers that match, best first, in their own order among equals.
  const found = [];
  names.forEach((name, number) => {
    const place = rank(visible(name), wanted);
    if (place !== null) found.push([place, number]);
  });
  return found.sort((a, b) => a[0] - b[0] || a[1] - b[1]).map(([, number]) => number);
}

export class ClassPicker {
  constructor(names, owner, choose) {
    this.names = names;
    this.choose = choose;
    this.keys = keysFor(names);
    this.byKey = new Map((this.keys ?? []).map((key, number) => [key, number]));
    this.list = document.getElementById("classes");
    this.input = document.getElementById("filter");
    this.none = document.getElementById("no-match");
    this.place = `chase.recent.${owner}`;
    this.recent = JSON.parse(localStorage.getItem(this.place) ?? "[]").filter((n) => n < names.length);
    this.marked = 0;
    this.shown = [];
    document.body.classList.toggle("many", !this.keys);
    document.getElementById("filter-row").hidden = Boolean(this.keys);
    if (this.keys) this.drawButtons();
    else this.prepareFilter();
  }

  get searching() {
    return !this.keys;
  }

  drawButtons() {
    const own = this.names.every((name) => [...name].length === 1);
    const longest = Math.max(...this.names.map((name) => visible(name).length));
    const size = own && this.names.length > 20 ? "crowd" : longest <= 2 ? "short" : longest > 22 ? "long" : "";
    this.list.className = `classes ${size} ${own ? "self" : ""}`;
    const hint = document.getElementById("key-hint");
    hint.hidden = !own;
    hint.textContent = "Press the character itself.";
    this.list.setAttribute("role", "group");
    this.list.setAttribute("aria-label", "Classes");
    this.list.replaceChildren(...this.names.map((name, number) => {
      const button = document.createElement("button");
      button.type = "button";
      button.dataset.label = number;
      button.setAttribute("aria-keyshortcuts", this.keys[number]);
      const key = document.createElement("kbd");
      key.textContent = this.keys[number];
      key.setAttribute("aria-hidden", "true");
      const text = document.createElement("span");
      text.className = "name";
      text.textContent = visible(name);
      button.classList.toggle("wide", own && visible(name) !== name);
      button.append(...(own ? [text] : [key, text]));
      button.addEventListener("click", (event) => {
        // After a click with the mouse, Space and Enter must not press this button again.
        if (event.detail > 0) button.blur();
        this.choose(number);
      });
      return button;
    }));
  }

  flash(number) {
    const button = this.list.querySelector(`[data-label="${number}"]`);
    if (!button) return;
    button.classList.add("hit");
    setTimeout(() => button.classList.remove("hit"), 130);
  }

  mark(number) {
    // The answer that stands, while it is being corrected.
    for (const element of this.list.querySelectorAll("[data-label]")) {
      if (Number(element.dataset.label) === number) element.setAttribute("aria-current", "true");
      else element.removeAttribute("aria-current");
    }
    this.standing = number;
  }

  used(number) {
    this.recent = [number, ...this.recent.filter((n) => n !== number)].slice(0, 6);
    localStorage.setItem(this.place, JSON.stringify(this.recent));
    if (!this.searching) return;
    this.input.value = "";
    this.drawMatches();
  }

  // many classes

  prepareFilter() {
    this.list.className = "classes";
    this.list.setAttribute("role", "listbox");
    this.list.setAttribute("aria-label", "Classes");
    this.input.addEventListener("input", () => this.drawMatches());
    this.list.addEventListener("click", (event) => {
      const option = event.target.closest("[role=option]");
      if (option) this.choose(Number(option.dataset.label));
    });
    this.drawMatches();
  }

  option(number, id) {
    const option = document.createElement("button");
    option.type = "button";
    option.tabIndex = -1;
    option.id = id;
    option.setAttribute("role", "option");
    option.dataset.label = number;
    const text = document.createElement("span");
    text.className = "name";
    text.textContent = visible(this.names[number]);
    option.append(text);
    if (number === this.standing) option.setAttribute("aria-current", "true");
    return option;
  }

  divider(words) {
    const line = document.createElement("div");
    line.className = "divider";
    line.setAttribute("role", "presentation");
    line.textContent = words;
    return line;
  }

  drawMatches() {
    const wanted = this.input.value.trim();
    const found = wanted ? search(this.names, wanted) : this.names.map((_, number) => number);
    const recent = wanted ? [] : this.recent;
    this.shown = [...recent, ...found];
    const children = this.shown.map((number, place) => this.option(number, `class-${place}`));
    if (recent.length) {
      children.splice(recent.length, 0, this.divider("All classes"));
      children.unshift(this.divider("Used last"));
    }
    this.list.replaceChildren(...children);
    this.list.scrollTop = 0;
    this.none.hidden = this.shown.length > 0;
    this.none.textContent = this.shown.length ? "" : `No class is called “${wanted}”.`;
    this.setMarked(wanted && this.shown.length ? 0 : -1);
  }

  setMarked(place) {
    this.marked = place;
    for (const option of this.list.querySelectorAll("[role=option]")) {
      const on = option.id === `class-${place}`;
      option.classList.toggle("marked", on);
      option.setAttribute("aria-selected", on);
      if (on) option.scrollIntoView({ block: "nearest" });
    }
    if (place >= 0) this.input.setAttribute("aria-activedescendant", `class-${place}`);
    else this.input.removeAttribute("aria-activedescendant");
  }

  focus() {
    if (this.searching && !matchMedia("(pointer: coarse)").matches) this.input.focus({ preventScroll: true });
  }

  // Returns true when the key was for the classes.
  key(event) {
    if (!this.searching) {
      const number = this.byKey.get(event.key);
      if (number === undefined) return false;
      this.flash(number);
      this.choose(number);
      return true;
    }
    const moves = { ArrowDown: 1, ArrowUp: -1 };
    if (event.key in moves && this.shown.length) {
      const next = this.marked + moves[event.key];
      this.setMarked(Math.max(this.input.value ? 0 : -1, Math.min(this.shown.length - 1, next)));
      return true;
    }
    if (event.key === "Enter" && this.marked >= 0) {
      this.choose(this.shown[this.marked]);
      return true;
    }
    if (event.key === "Escape" && this.input.value) {
      this.input.value = "";
      this.drawMatches();
      return true;
    }
    if (event.key === "Backspace" && this.input.value) {
      if (document.activeElement === this.input) return "native";
      this.input.focus();
      return "native";
    }
    if (event.key.length === 1 && event.key !== " " && document.activeElement !== this.input) {
      this.input.focus();
      return "native";
    }
    return document.activeElement === this.input && event.key.length === 1 ? "native" : false;
  }
}
