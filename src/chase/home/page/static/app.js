// The page: what is on the screen, and what keys and clicks do. No sample and no label leaves this machine.

import { call, Outbox, Refusal, UNREACHABLE } from "./api.js";
import { ClassPicker, visible } from "./classes.js";
import { Desk } from "./desk.js";
import { drawAbout, drawOpinions, drawProgress, drawThoughts, why } from "./describe.js";
import { Grid } from "./grid.js";
import { Guide } from "./guide.js";
import { History } from "./history.js";
import { Presence } from "./presence.js";
import { load } from "./samples.js";
import { Settings } from "./settings.js";
import { Stage } from "./stage.js";
import { Team } from "./team.js";
import { $, banner, make, notice, plural, say } from "./ui.js";

const AHEAD = 6;
const POLL_MS = 2500;
const SETTLE_MS = 350;
const LOCKED = "The page was locked, as nobody had used it for a while.";
const VIEWS = ["one", "grid", "conflicts", "team"];

let me = null;
let picker = null;
let grid = null;
let stage = null;
let outbox = null;
let desk = null;
let settings = null;
let history = null;
let guide = null;
let team = null;
let presence = null;
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

function message(title, ...paragraphs) {
  const lines = paragraphs.map((words) => make("p", { textContent: words, className: "soft" }));
  $("message").replaceChildren(make("h1", { textContent: title }), ...lines);
  $("message").hidden = false;
  $("work").hidden = $("team").hidden = true;
}

function nameOf(label, reason) {
  return label === null ? reason : visible(me.classes[label]);
}

function altOf(question) {
  return `Sample ${question.sample}, an image to label`;
}

// ---- one sample

function showCurrent(entry, note = null) {
  current = entry;
  revising = note;
  $("message").hidden = true;
  if ($("work").hidden) {
    $("work").hidden = false;
    picker.focus();
  }
  $("revising").hidden = !note;
  if (note) {
    const keep = make("button", { type: "button", textContent: "Keep it" });
    keep.addEventListener("click", keepIt);
    $("revising").replaceChildren(`You said ${nameOf(note.label, note.reason)}. It is kept until you choose another. `, keep);
  }
  picker.mark(note ? note.label : null);
  desk.begin();
  $("why").textContent = why(entry);
  $("sample-name").textContent = `sample ${entry.sample}`;
  drawAbout(entry);
  drawOpinions(entry.answers, nameOf);
  drawThoughts($("before"), entry.thoughts, me.classes, undefined, "The model predicts");
  shownAt = performance.now();
  return stage.show(entry);
}

function armed() {
  shownAt = performance.now();
}

function keepIt() {
  revising = null;
  advance();
}

function nothingLeft() {
  current = null;
  stage.clear();
  if (view === "conflicts") {
    message("No conflict waits for a decision", "Answers that differ, and answers of people who were not sure, come here.");
  } else {
    message(
      "All done for now",
      me.progress && me.progress.mine ? `You have labelled ${plural(me.progress.mine, "sample")}. Thank you.` : "No sample waits for you.",
      "New questions come when training has had its next turn. This page looks for them by itself; you can leave it open.",
    );
    if (me.progress?.mine) {
      const undo = make("button", { type: "button", textContent: "Undo the last answer" });
      undo.addEventListener("click", takeBack);
      $("message").append(undo);
    }
  }
  clearTimeout(poll);
  poll = setTimeout(() => refill(true), POLL_MS);
}

function advance() {
  if (view === "grid") return;
  queue = queue.filter((question) => !sent.has(question.id));
  if (queue.length) showCurrent(queue[0]);
  else {
    stage.clear();
    if (outbox.size === 0) nothingLeft();
    else current = null;
  }
  for (const question of queue.slice(1)) load(question.sample).catch(() => {});
}

// ---- with the server

function want() {
  if (view === "conflicts") return { want: AHEAD, shown: 0, conflicts: true };
  return view === "grid" ? { want: grid.size, shown: grid.size } : { want: AHEAD, shown: 1 };
}

async function refill(waiting = false) {
  clearTimeout(poll);
  if (view === "team") return;
  try {
    await outbox.flush();
    const known = new Set(outbox.size ? [] : sent);
    const result = await call("/api/next", { ...want(), idle: waiting });
    // What the server asks although it has the answer is open again: undone in another tab, or an older backup.
    for (const question of result.queue) if (known.has(question.id)) sent.delete(question.id);
    take(result);
  } catch (error) {
    failed(error);
  }
}

function take(result, beat = false) {
  // What the server says is next. Whatever the person has not answered yet stays on the screen if it still may.
  const { progress, reveal, policy, goal } = result;
  Object.assign(me, { progress, reveal, policy, goal });
  drawProgress(progress, goal);
  banner(null);
  if (view === "team") return;
  const open = result.queue.filter((question) => !sent.has(question.id));
  if (view === "grid") {
    const gone = beat && grid.giveUp((question) => sent.has(question.id) || open.some((one) => one.id === question.id));
    if (gone) notice(`${plural(gone, "sample")} on your screen went to a colleague, or got an answer.`);
    if (grid.questions.length === 0 || grid.finished) showGrid(open);
    return;
  }
  queue = open;
  if (revising) return;
  if (!current || !open.some((question) => question.id === current.id)) {
    if (current) {
      settleUntil = performance.now() + SETTLE_MS;
      notice("The sample on your screen was given to a colleague, or answered.");
    }
    advance();
  } else {
    queue = [current, ...open.filter((question) => question.id !== current.id)];
    for (const question of queue.slice(1)) load(question.sample).catch(() => {});
  }
}

function failed(error) {
  if (error instanceof Refusal && error.status === 401) {
    const unsent = outbox?.size ? [`${plural(outbox.size, "answer")} not saved yet will be sent when you are back.`] : [];
    me = null;
    current = null;
    stage?.clear();
    grid?.show([]);
    presence?.stop();
    clearTimeout(poll);
    for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
    $("progress").hidden = true;
    $("team").replaceChildren();
    message("Please open your own link", `${error.message === LOCKED ? LOCKED : "Your session has ended."} Ask whoever runs this page for a new link.`, ...unsent);
    return;
  }
  if (error instanceof Refusal && error.kind !== "storage") {
    notice(error.message);
    return;
  }
  const why = error instanceof Refusal ? error.message : UNREACHABLE;
  banner(`${why[0].toUpperCase()}${why.slice(1)}. Trying again …`);
  clearTimeout(poll);
  poll = setTimeout(refill, POLL_MS);
}

// What is in view and belongs to this person: a sample or a page of the grid.
function claimed() {
  if (!me || revising || $("work").hidden) return null;
  if (view === "grid") return grid.questions.length ? grid.questions : null;
  return view === "one" ? current : null;
}

async function lock() {
  if (!me) return;
  failed(new Refusal(401, LOCKED, "locked"));
  await call("/api/leave", {}).catch(() => {}); // the server ends the session by its own clock too
}

function owner() {
  return `${me.home}.${me.annotator}`;
}

function makeOutbox() {
  return new Outbox(owner(), {
    delivered(result, body, left) {
      for (const one of result.refused) notice(one.kind === "already answered" ? `Not accepted: ${one.error}.` : one.error);
      const last = result.accepted.at(-1);
      if (last && left === 0 && body.answers.length === 1) {
        const answer = body.answers.find((one) => one.sample === last.sample);
        drawThoughts($("after"), last.thoughts, me.classes, answer.label);
      }
      if (result.warning) notice(result.warning);
      if (left === 0) {
        sent = new Set([...sent].slice(-500));
        take(result);
      }
    },
    refused(error) {
      failed(error);
    },
    trouble(count, why) {
      banner(count ? `${plural(count, "answer")} not saved yet: ${why}. Trying again …` : null);
    },
  });
}

function seconds() {
  return Math.max(0, (performance.now() - shownAt) / 1000);
}

function key() {
  return [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

// The only way from a key or a click to an answer: it is refused unless the sample is on the screen.
function answer(label, reason = "") {
  if (!me || performance.now() < settleUntil) return;
  if (view === "grid") {
    answerGrid(label, reason);
    return;
  }
  if (!current) return;
  const broken = stage.isBroken && label === null && reason === "bad sample";
  const refusal = broken ? null : stage.refusal(current);
  if (refusal) {
    if (stage.isBroken || stage.ready(current)) notice(refusal);
    else say(refusal);
    return;
  }
  const given = { sample: current.sample, question: current.id, label, reason, seconds: seconds(), key: key(),
    revise: Boolean(revising), seen: stage.seen, ...desk.take() };
  if (view === "conflicts") given.decide = true;
  send(given, current);
}

function send(given, asked) {
  const words = nameOf(given.label, given.reason);
  if (!revising) sent.add(asked.id);
  countHere(1, given.label === null);
  showLast(given.unsure ? `${words}, not sure` : words, 1, Boolean(revising));
  revising = null;
  queue = queue.filter((question) => !sent.has(question.id));
  const next = queue[0];
  say(`${words}. ${next ? "Next sample." : ""}`);
  if (given.label !== null) picker.used(given.label);
  if (next) advance();
  else {
    current = null;
    stage.clear();
  }
  outbox.put({ answers: [given], ...want() });
  picker.focus();
}

function countHere(count, skipped) {
  // The bar moves at once; the server's own figures follow.
  const progress = me.progress;
  if (!progress || revising || view === "conflicts") return;
  const more = skipped ? { skipped: progress.skipped + count } : { answered: progress.answered + count };
  const inRound = current && current.round !== progress.round ? 0 : count;
  me.progress = { ...progress, ...more, open: Math.max(0, progress.open - count), mine: progress.mine + count,
    round_done: Math.min(progress.round_asked, progress.round_done + inRound) };
  drawProgress(me.progress, me.goal);
}

function showLast(words, count, corrected) {
  $("last").hidden = false;
  $("last-what").textContent = corrected ? "Corrected to" : count > 1 ? `Last answer, for ${count} samples` : "Last answer";
  $("last-label").textContent = words;
  drawThoughts($("after"), [], me.classes);
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
  drawProgress(result.progress, me.goal);
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
  return { id: answered.question_id ?? 0, sample: answered.sample, name: answered.name, about: {}, round: answered.round ?? 0,
    strategy: answered.strategy ?? "", ev: answered.ev ?? 0, score: answered.score ?? null, thoughts: [] };
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
  const { taken, left, seconds: each } = grid.take(words, reason === "bad sample");
  if (!taken.length) {
    notice(left ? "These pictures are not on the screen yet, or cannot be shown: they cannot be labelled." : "Select samples first, then choose their class.");
    return;
  }
  if (left) notice(`${plural(left, "sample")} left out: not on the screen yet, or cannot be shown.`);
  for (const { question } of taken) sent.add(question.id);
  const extra = desk.take();
  const answers = taken.map(({ question, seen }) => (
    { sample: question.sample, question: question.id, label, reason, seconds: each, key: key(), seen, ...extra }));
  countHere(taken.length, label === null);
  showLast(words, taken.length, false);
  say(`${words}, ${plural(taken.length, "sample")}.`);
  if (label !== null) picker.used(label);
  outbox.put({ answers, batch: key(), ...want() });
  picker.focus();
}

function setView(which, fetch = true) {
  view = which;
  if (which === "one" || which === "grid") localStorage.setItem("chase.view", which);
  for (const name of VIEWS) $(`view-${name}`).setAttribute("aria-pressed", which === name);
  $("one").hidden = which === "grid";
  $("grid").hidden = which !== "grid";
  $("team").hidden = which !== "team";
  document.body.dataset.view = which;
  const asks = { grid: "What are these?", conflicts: "What is it? Your decision is the label." };
  $("ask").textContent = asks[which] ?? (me.predicts_next ? "What comes next?" : "What is this?");
  if (!fetch) return;
  current = revising = null;
  clearTimeout(poll);
  picker.mark(null);
  grid.show([]);
  stage.clear();
  if (which === "team") {
    $("work").hidden = $("message").hidden = true;
    team.show();
  } else {
    refill();
  }
}

// ---- keys

const SHIFTED = {
  KeyN: () => desk.toggleUnsure(),
  KeyC: () => desk.openComment(),
  KeyF: () => stage.viewer.fullScreen(),
  KeyP: () => $("pixels").click(),
  KeyB: () => $("adjust-open").click(),
  KeyG: () => guide.toggle(),
};

function onKey(event) {
  if (!me || event.defaultPrevented || event.isComposing || view === "team") return;
  const dialog = document.querySelector("dialog:modal");
  if (dialog) {
    if (dialog.id === "skip-dialog" && ["1", "2", "3"].includes(event.key)) {
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
  if (event.ctrlKey || event.metaKey) return;
  if (event.target.matches?.("input[type=range], textarea, summary")) return;
  const working = !$("work").hidden;
  if (working && event.shiftKey && SHIFTED[event.code] && (picker.searching ? event.altKey : !picker.byKey.has(event.key))) {
    event.preventDefault();
    SHIFTED[event.code]();
    return;
  }
  if (event.altKey) return;
  const onButton = event.target.closest?.("button, a") && (event.key === "Enter" || event.key === " ");
  if (onButton) return;
  if (working && view !== "grid" && scrolls(event) && stage.key(event)) {
    event.preventDefault();
    return;
  }
  if (event.repeat && event.target.id !== "filter") return;
  if (working && stage.isBroken && event.key === "Enter") {
    event.preventDefault();
    answer(null, "bad sample");
    return;
  }
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
    else if (stage.isBroken) answer(null, "bad sample");
    else if (current || (view === "grid" && grid.questions.length)) $("skip-dialog").showModal();
  }
}

// A key that moves the sample rather than answers: never one that is a class, and not while a class is being typed.
function scrolls(event) {
  if (!picker.searching) return !picker.byKey.has(event.key);
  return ["PageDown", "PageUp"].includes(event.key) || (!$("filter").value && ["+", "-", "Home", "End"].includes(event.key));
}

function keysOn() {
  return localStorage.getItem("chase.keys") !== "off";
}

function listen() {
  document.addEventListener("keydown", onKey);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) hiddenAt = performance.now();
    else if (hiddenAt) shownAt += performance.now() - hiddenAt;
  });
  $("undo").addEventListener("click", takeBack);
  $("skip").addEventListener("click", () => $("skip-dialog").showModal());
  for (const name of VIEWS) $(`view-${name}`).addEventListener("click", () => setView(name));
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
  if (location.hash) window.history.replaceState(null, "", "/");
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

function furnish() {
  picker = new ClassPicker(me.classes, owner(), (label) => answer(label));
  grid = new Grid(me.kind, me.predicts_next, altOf);
  desk = new Desk();
  guide = new Guide(me);
  settings = new Settings(me, { failed, changed: () => { if (view === "one") { current = null; refill(); } } });
  stage = new Stage({
    predictsNext: me.predicts_next, alt: altOf, armed,
    readToEnd: () => settings.readToEnd,
    unreadable: () => say("This picture cannot be shown. Record it as a bad sample."),
    broken: () => answer(null, "bad sample"),
  });
  history = new History(me, {
    failed, nameOf, flush: () => outbox.flush(),
    choose(one) {
      if (view !== "one") setView("one", false);
      $("team").hidden = true;
      showCurrent(bare(one), one);
    },
  });
  team = new Team(me, { failed, saved: (policy) => { me.policy = policy; me.reveal = policy.reveal === "own" ? me.reveal : policy.reveal; } });
  presence = new Presence({ failed, take, want, lock, idleMinutes: () => me?.policy.idle_minutes ?? 0, on: claimed });
  outbox = makeOutbox();
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
  $("view-conflicts").hidden = me.role === "annotator";
  $("view-team").hidden = me.role !== "lead";
  furnish();
  await outbox.open();
  listen();
  setView(view);
  picker.focus();
}

// A link pasted into a page that is open changes only what follows the #: start again with it.
addEventListener("hashchange", () => {
  if (location.hash.startsWith("#token=")) location.reload();
});
begin();
