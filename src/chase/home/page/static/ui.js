// Small things that every part of the page uses.

export const $ = (id) => document.getElementById(id);

export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

export function plural(count, one, many = `${one}s`) {
  return `${count} ${count === 1 ? one : many}`;
}

export function say(words) {
  $("live").textContent = "";
  requestAnimationFrame(() => { $("live").textContent = words; });
}

export function banner(words) {
  $("banner").hidden = !words;
  $("banner").textContent = words ?? "";
}

let passing = null;
export function notice(words) {
  banner(words);
  clearTimeout(passing);
  passing = setTimeout(() => banner(null), 5000);
}

// After this the browser has drawn what was on the page when it was called: the first frame is the one being
// prepared, the second begins after the first was drawn. In a hidden tab it waits until the tab is looked at.
export function painted() {
  return new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
}

export function when(seconds) {
  const at = new Date(seconds * 1000);
  const time = document.createElement("time");
  time.dateTime = at.toISOString();
  const day = at.toDateString() === new Date().toDateString() ? {} : { day: "numeric", month: "short" };
  time.textContent = at.toLocaleString([], { ...day, hour: "2-digit", minute: "2-digit" });
  return time;
}
