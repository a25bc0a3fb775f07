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

// One line for three things, the most urgent first: no connection, a question to the person, a passing notice.
const lines = { trouble: null, question: null, notice: null };

function tell(kind, words) {
  lines[kind] = words;
  const shown = lines.trouble ?? lines.question ?? lines.notice;
  $("banner").hidden = !shown;
  if ($("banner").textContent !== (shown ?? "")) $("banner").textContent = shown ?? "";
}

export const banner = (words) => tell("trouble", words);
export const ask = (words) => tell("question", words);

let passing = null;
export function notice(words) {
  tell("notice", words);
  clearTimeout(passing);
  passing = setTimeout(() => tell("notice", null), Math.max(5000, 70 * words.length));
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
