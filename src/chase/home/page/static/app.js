// The page: what is on the screen, and what keys and clicks do. No sample and no label leaves this machine.

import { call, Outbox, Refusal } from "./api.js";
import { ClassPicker, visible } from "./classes.js";
import { Grid } from "./grid.js";
import { load, paint } from "./samples.js";

const $ = (id) => document.getElementById(id);
const AHEAD = 6;
const POLL_MS = 2500;
const SETTLE_MS = 350;

let me = null;
let picker = null;
let grid = null;
let outbox = null;
let view = localStorage.getItem("chase.view") === "grid" ? "grid" : "one";
let queue = [];
let current = null;
let revising = null;
let sent = new Set();
let shownAt = 0;
let hiddenAt = 0;
let settleUntil = 0;
let poll = null;

// ---- small things

function say(words) {
  $("live").textContent = "";
  requestAnimationFrame(() => { $("live").textContent = words; });
}

function banner(words) {
  $("banner").hidden = !words;
  $("banner").textContent = words ?? "";
}

let passing = null;
function notice(words) {
  banner(words);
  clearTimeout(passing);
  passing = setTimeout(() => banner(null), 5000);
}

function message(title, ...paragraphs) {
  const heading = document.createElement("h1");
  heading.textContent = title;
  const lines = paragraphs.map((words) => Object.assign(document.createElement("p"), { textContent: words, className: "soft" }));
  $("message").replaceChildren(heading, ...lines);
  $("message").hidden = false;
  $("work").hidden = true;
}

function nameOf(label, reason) {
  return label === null ? reason : visible(me.classes[label]);
}

function plural(count, one, many = `${one}s`) {
  return `${count} ${count === 1 ? one : many}`;
}

function why(question) {
  const parts = question.round ? [`Asked in round ${question.round} by ${question.strategy}`] : [`Asked by ${question.strategy}`];
  if (question.ev > 0) parts.push(`its prediction changed ${plural(question.ev, "time")} in training (EV ${question.ev})`);
  if (question.score !== null && question.score !== question.ev) parts.push(`score ${Number(question.score.toPrecision(3))}`);
  return parts.join("; ");
}

function drawThoughts(place, thoughts, label = undefined, heading = "The model thought") {
  place.replaceChildren();
  place.hidden = !thoughts?.length;
  if (!thoughts?.length) return;
  const title = document.createElement("p");
  title.className = "soft";
  title.textContent = heading;
  place.append(title);
  for (const [number, chance] of thoughts) {
    const row = document.createElement("div");
    row.className = `row${number === label ? " same" : ""}`;
    const name = Object.assign(document.createElement("span"), { textContent: visible(me.classes[number]) });
    const track = document.createElement("i");
    const bar = document.createElement("b");
    bar.style.width = `${Math.round(100 * chance)}%`;
    track.append(bar);
    const share = Object.assign(document.createElement("span"), { textContent: `${Math.round(100 * chance)} %` });
    row.append(name, track, share);
    place.append(row);
  }
}

function drawProgress(progress) {
  $("progress").hidden = false;
  const { round, round_done: done, round_asked: asked } = progress;
  $("round-text").textContent = asked ? `Round ${round}: ${done} of ${asked}` : "Nothing asked yet";
  const aside = progress.skipped ? ` · ${progress.skipped} set aside` : "";
  $("all-text").textContent = `${progress.answered} labelled in all${aside} · ${progress.open} to do`;
  $("fill").style.width = asked ? `${(100 * done) / asked}%` : "0";
  $("meter").setAttribute("aria-valuemax", asked);
  $("meter").setAttribute("aria-valuenow", done);
}

// ---- one sample

function altOf(question) {
  return `Sample ${question.sample}, an image to label`;
}

async function showCurrent(entry, note = null) {
  current = entry;
  revising = note;
  $("message").hidden = true;
  if ($("work").hidden) {
    $("work").hidden = false;
    picker.focus();
  }
  $("revising").hidden = !note;
  if (note) {
    const keep = Object.assign(document.createElement("button"), { type: "button", textContent: "Keep it" });
    keep.addEventListener("click", keepIt);
    $("revising").replaceChildren(`You said ${nameOf(note.label, note.reason)}. It stands until you choose another. `, keep);
  }
  picker.mark(note ? note.label : null);
  $("why").textContent = why(entry);
  $("sample-name").textContent = `sample ${entry.sample}`;
  drawThoughts($("before"), entry.thoughts, undefined, "The model thinks");
  shownAt = performance.now();
  try {
    const sample = await load(entry.sample);
    if (current !== entry) return;
    draw(entry, sample);
  } catch (error) {
    if (current === entry) notice(error.message);
  }
  shownAt = performance.now();
}

function draw(entry, sample) {
  const isText = sample.text !== undefined;
  $("image").hidden = isText;
  $("text").hidden = !isText;
  const element = isText ? $("text") : $("image");
  if (isText) {
    element.replaceChildren(sample.text);
    element.classList.toggle("typed", me.predicts_next);
    if (me.predicts_next) {
      const slot = Object.assign(document.createElement("span"), { className: "slot", textContent: "?" });
      slot.setAttribute("role", "img");
      slot.setAttribute("aria-label", "the character to predict");
      element.append(slot);
      element.scrollTop = element.scrollHeight;
    } else {
      element.scrollTop = 0;
    }
  } else {
    paint(element, sample, altOf(entry));
  }
  // A small picture blown up to blocks is easier to make out from afar.
  $("afar").hidden = isText || Math.max(sample.width, sample.height) > 64;
  if (!$("afar").hidden) $("afar").src = sample.url;
  element.classList.remove("swap");
  void element.offsetWidth;
  element.classList.add("swap");
}

function keepIt() {
  revising = null;
  advance();
}

function nothingLeft() {
  current = null;
  message(
    "All done for now",
    me.progress && me.progress.mine ? `You have labelled ${plural(me.progress.mine, "sample")}. Thank you.` : "No sample waits for you.",
    "New questions come when training has had its next turn. This page looks for them by itself; you can leave it open.",
  );
  if (me.progress?.mine) {
    const undo = Object.assign(document.createElement("button"), { type: "button", textContent: "Undo the last answer" });
    undo.addEventListener("click", takeBack);
    $("message").append(undo);
  }
  clearTimeout(poll);
  poll = setTimeout(refill, POLL_MS);
}

function advance() {
  if (view === "grid") return;
  queue = queue.filter((question) => !sent.has(question.id));
  if (queue.length) showCurrent(queue[0]);
  else if (outbox.size === 0) nothingLeft();
  else current = null;
  for (const question of queue.slice(1)) load(question.sample).catch(() => {});
}

// ---- with the server

function want() {
  return view === "grid" ? { want: grid.size, shown: grid.size } : { want: AHEAD, shown: 1 };
}

async function refill() {
  clearTimeout(poll);
  try {
    await outbox.flush();
    take(await call("/api/next", want()));
  } catch (error) {
    failed(error);
  }
}

function take(result) {
  // What the server says is next. Whatever the person has not answered yet stays on the screen if it still may.
  me.progress = result.progress;
  drawProgress(result.progress);
  banner(null);
  const open = result.queue.filter((question) => !sent.has(question.id));
  if (view === "grid") {
    if (grid.questions.length === 0 || grid.finished) showGrid(open);
    return;
  }
  queue = open;
  if (revising) return;
  if (!current || !open.some((question) => question.id === current.id)) {
    if (current) settleUntil = performance.now() + SETTLE_MS;
    advance();
  } else {
    queue = [current, ...open.filter((question) => question.id !== current.id)];
    for (const question of queue.slice(1)) load(question.sample).catch(() => {});
  }
}

function failed(error) {
  if (error instanceof Refusal && error.status === 401) {
    me = null;
    $("progress").hidden = true;
    const unsent = outbox?.size ? [`${plural(outbox.size, "answer")} not saved yet will be sent when you are back.`] : [];
    message("Please open your own link", "Your session has ended. Ask whoever runs this page for a new link.", ...unsent);
    return;
  }
  if (error instanceof Refusal) {
    notice(error.message);
    return;
  }
  banner("The page's server cannot be reached. Trying again …");
  clearTimeout(poll);
  poll = setTimeout(refill, POLL_MS);
}

function owner() {
  return `${me.home}.${me.annotator}`;
}

function makeOutbox() {
  return new Outbox(owner(), {
    delivered(result, body, left) {
      for (const one of result.refused) notice(one.kind === "already answered" ? `Not taken: ${one.error}.` : one.error);
      const last = result.accepted.at(-1);
      if (last && left === 0 && body.answers.length === 1) {
        const answer = body.answers.find((one) => one.sample === last.sample);
        drawThoughts($("after"), last.thoughts, answer.label);
      }
      if (left === 0) {
        const kept = $("banner").hidden ? null : $("banner").textContent;
        sent = new Set([...sent].slice(-500));
        take(result);
        if (kept && result.refused.length) banner(kept);
      }
    },
    refused(error) {
      failed(error);
    },
    trouble(count) {
      banner(count ? `${plural(count, "answer")} not saved yet: the page's server cannot be reached. Trying again …` : null);
    },
  });
}

function seconds() {
  return Math.max(0, (performance.now() - shownAt) / 1000);
}

function key() {
  return [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function answer(label, reason = "") {
  if (performance.now() < settleUntil) return;
  if (view === "grid") {
    answerGrid(label, reason);
    return;
  }
  if (!current) return;
  const given = { sample: current.sample, label, reason, seconds: seconds(), key: key(), revise: Boolean(revising) };
  const words = nameOf(label, reason);
  if (!revising) sent.add(current.id);
  countHere(1, label === null);
  showLast(words, 1, Boolean(revising));
  revising = null;
  queue = queue.filter((question) => !sent.has(question.id));
  const next = queue[0];
  say(`${words}. ${next ? "Next sample." : ""}`);
  if (label !== null) picker.used(label);
  if (next) advance();
  else current = null;
  outbox.put({ answers: [given], ...want() });
  picker.focus();
}

function countHere(count, skipped) {
  // The bar moves at once; the server's own figures follow.
  const progress = me.progress;
  if (!progress || revising) return;
  const more = skipped ? { skipped: progress.skipped + count } : { answered: progress.answered + count };
  const inRound = current && current.round !== progress.round ? 0 : count;
  me.progress = { ...progress, ...more, open: Math.max(0, progress.open - count), mine: progress.mine + count,
    round_done: Math.min(progress.round_asked, progress.round_done + inRound) };
  drawProgress(me.progress);
}

function showLast(words, count, corrected) {
  $("last").hidden = false;
  $("last-what").textContent = corrected ? "Corrected to" : count > 1 ? `Last answer, for ${count} samples` : "Last answer";
  $("last-label").textContent = words;
  drawThoughts($("after"), []);
}

async function takeBack() {
  const before = revising?.answer ?? null;
  try {
    await outbox.flush();
    const result = await call("/api/undo", { before, ...want() });
    if (!result.undone.length) {
      notice(before ? "There is no earlier answer of yours." : "There is nothing to undo.");
      return;
    }
    undone(result);
  } catch (error) {
    failed(error);
  }
}

function undone(result) {
  for (const one of result.undone) if (one.question) sent.delete(one.question.id);
  $("last").hidden = true;
  me.progress = result.progress;
  drawProgress(result.progress);
  const [first] = result.undone;
  say(`Undone: ${nameOf(first.label, first.reason)}.`);
  const standing = result.undone.find((one) => one.stands);
  if (view === "grid" && !standing) {
    showGrid(result.queue);
    return;
  }
  if (view === "grid") setView("one", false);
  queue = result.queue.filter((question) => !sent.has(question.id));
  if (standing) showCurrent(standing.question ?? bare(standing), standing);
  else {
    current = null;
    revising = null;
    advance();
  }
}

function bare(answered) {
  return { id: 0, sample: answered.sample, round: answered.round ?? 0, strategy: answered.strategy ?? "", ev: answered.ev ?? 0,
    score: answered.score ?? null, thoughts: [] };
}

// ---- grid

function showGrid(questions) {
  if (!questions.length) {
    grid.show([]);
    nothingLeft();
    return;
  }
  clearTimeout(poll);
  $("message").hidden = true;
  $("work").hidden = false;
  current = null;
  grid.show(questions);
  if (!picker.searching) grid.focus(0);
}

function answerGrid(label, reason) {
  const words = nameOf(label, reason);
  const { questions, seconds: each } = grid.take(words);
  if (!questions.length) {
    notice("Select samples first, then choose their class.");
    return;
  }
  for (const question of questions) sent.add(question.id);
  const answers = questions.map((question) => ({ sample: question.sample, label, reason, seconds: each, key: key() }));
  countHere(questions.length, label === null);
  showLast(words, questions.length, false);
  say(`${words}, ${plural(questions.length, "sample")}.`);
  if (label !== null) picker.used(label);
  outbox.put({ answers, batch: key(), ...want() });
  picker.focus();
}

function setView(which, fetch = true) {
  view = which;
  localStorage.setItem("chase.view", which);
  $("view-one").setAttribute("aria-pressed", which === "one");
  $("view-grid").setAttribute("aria-pressed", which === "grid");
  $("one").hidden = which !== "one";
  $("grid").hidden = which !== "grid";
  $("ask").textContent = which === "grid" ? "What are these?" : me.predicts_next ? "What comes next?" : "What is this?";
  if (!fetch) return;
  current = revising = null;
  picker.mark(null);
  grid.show([]);
  refill();
}

// ---- history and settings

async function openHistory() {
  $("history").replaceChildren();
  await moreHistory(2 ** 53);
  $("history-dialog").showModal();
}

async function moreHistory(before) {
  try {
    await outbox.flush();
    const { answers } = await call(`/api/history?before=${before}&limit=30`);
    for (const one of answers) $("history").append(historyLine(one));
    if (!$("history").children.length) {
      $("history").append(Object.assign(document.createElement("li"), { className: "soft", textContent: "You have not answered yet." }));
    }
    $("more-history").hidden = answers.length < 30;
    $("more-history").onclick = () => moreHistory(answers.at(-1).answer);
  } catch (error) {
    failed(error);
  }
}

function historyLine(one) {
  const item = document.createElement("li");
  const button = Object.assign(document.createElement("button"), { type: "button" });
  const words = nameOf(one.label, one.reason);
  button.setAttribute("aria-label", `Correct ${words}, sample ${one.sample}`);
  const name = Object.assign(document.createElement("strong"), { textContent: words });
  const when = document.createElement("time");
  const at = new Date(one.answered_at * 1000);
  when.dateTime = at.toISOString();
  const today = at.toDateString() === new Date().toDateString();
  const day = today ? {} : { day: "numeric", month: "short" };
  when.textContent = at.toLocaleString([], { ...day, hour: "2-digit", minute: "2-digit" });
  const small = document.createElement(me.kind === "text" ? "span" : "img");
  small.className = me.kind === "text" ? "snip" : "";
  load(one.sample).then((sample) => {
    if (sample.text === undefined) paint(small, sample, "");
    else small.textContent = sample.text.slice(-60);
  }).catch(() => {});
  button.append(small, name, when);
  button.addEventListener("click", () => {
    $("history-dialog").close();
    if (view === "grid") setView("one", false);
    showCurrent(bare(one), one);
  });
  item.append(button);
  return item;
}

function openSettings() {
  for (const input of document.querySelectorAll("[name=reveal]")) input.checked = input.value === me.reveal;
  const theme = localStorage.getItem("chase.theme") ?? "auto";
  for (const input of document.querySelectorAll("[name=theme]")) input.checked = input.value === theme;
  $("keys-on").checked = keysOn();
  $("settings-dialog").showModal();
}

function keysOn() {
  return localStorage.getItem("chase.keys") !== "off";
}

async function setReveal(value) {
  try {
    me.reveal = (await call("/api/settings", { reveal: value })).reveal;
    if (view === "one") {
      current = null;
      refill();
    }
  } catch (error) {
    failed(error);
  }
}

function setTheme(value) {
  localStorage.setItem("chase.theme", value);
  if (value === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = value;
}

async function leave() {
  $("settings-dialog").close();
  try {
    await call("/api/leave", {});
  } finally {
    location.replace("/");
  }
}

// ---- keys

function onKey(event) {
  if (!me || event.defaultPrevented || event.isComposing) return;
  const dialog = document.querySelector("dialog[open]");
  if (dialog) {
    if (dialog.id === "skip-dialog" && (event.key === "1" || event.key === "2")) {
      event.preventDefault();
      dialog.querySelectorAll("[data-reason]")[Number(event.key) - 1].click();
    }
    return;
  }
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z" && !$("filter").value) {
    event.preventDefault();
    takeBack();
    return;
  }
  if (view === "grid" && !$("work").hidden && !(picker.searching && $("filter").value) && grid.key(event)) {
    event.preventDefault();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const onButton = event.target.closest?.("button, a, [tabindex='0']") && (event.key === "Enter" || event.key === " ");
  if (onButton && event.target.id !== "text") return;
  if (event.repeat && event.target.id !== "filter") return;
  const working = !$("work").hidden;
  if (working && (keysOn() || picker.searching)) {
    const used = picker.key(event);
    if (used === "native") return;
    if (used) {
      event.preventDefault();
      return;
    }
  }
  if (event.key === "Backspace") {
    event.preventDefault();
    takeBack();
  } else if (event.key === "Escape" && working) {
    event.preventDefault();
    if (revising) keepIt();
    else if (current || (view === "grid" && grid.questions.length)) $("skip-dialog").showModal();
  }
}

function listen() {
  document.addEventListener("keydown", onKey);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) hiddenAt = performance.now();
    else if (hiddenAt) shownAt += performance.now() - hiddenAt;
  });
  $("undo").addEventListener("click", takeBack);
  $("skip").addEventListener("click", () => $("skip-dialog").showModal());
  $("view-one").addEventListener("click", () => setView("one"));
  $("view-grid").addEventListener("click", () => setView("grid"));
  $("open-history").addEventListener("click", openHistory);
  $("open-settings").addEventListener("click", openSettings);
  $("leave").addEventListener("click", leave);
  $("keys-on").addEventListener("change", (event) => localStorage.setItem("chase.keys", event.target.checked ? "on" : "off"));
  for (const input of document.querySelectorAll("[name=reveal]")) input.addEventListener("change", () => setReveal(input.value));
  for (const input of document.querySelectorAll("[name=theme]")) input.addEventListener("change", () => setTheme(input.value));
  for (const button of document.querySelectorAll("[data-close]")) button.addEventListener("click", () => button.closest("dialog").close());
  for (const button of document.querySelectorAll("[data-reason]")) {
    button.addEventListener("click", () => {
      $("skip-dialog").close();
      answer(null, button.dataset.reason);
    });
  }
}

// ---- beginning

let token = null;

async function enter() {
  token ??= new URLSearchParams(location.hash.slice(1)).get("token");
  if (location.hash) history.replaceState(null, "", "/");
  if (!token) return call("/api/me");
  try {
    await call("/api/enter", { token });
  } catch (refused) {
    // A link opened a second time where its session still lives.
    if (!(refused instanceof Refusal)) throw refused;
    return call("/api/me").catch(() => { throw refused; });
  }
  return call("/api/me");
}

async function begin() {
  try {
    me = await enter();
  } catch (error) {
    if (!(error instanceof Refusal)) {
      message("The page's server cannot be reached", "Trying again …");
      setTimeout(begin, POLL_MS);
    } else if (error.kind === "bad link") {
      message("This link does not open the page", `${error.message[0].toUpperCase()}${error.message.slice(1)}.`);
    } else {
      message("Please open your own link", "Each annotator has one. Ask whoever runs this page for yours.");
    }
    return;
  }
  document.title = `Labelling: ${me.site}`;
  $("site").textContent = me.site;
  $("annotator").textContent = me.annotator;
  picker = new ClassPicker(me.classes, owner(), (label) => answer(label));
  grid = new Grid(me.kind, altOf);
  outbox = makeOutbox();
  listen();
  setView(view);
  picker.focus();
}

// A link pasted into a page that is open changes only what stands behind the #: begin anew with it.
addEventListener("hashchange", () => {
  if (location.hash.startsWith("#token=")) location.reload();
});
begin();
