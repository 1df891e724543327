// The page: what is typed becomes requests, what the server answers becomes questions. `Work` holds the state.

import { Offsets } from "./offsets.js";
import { Passage } from "./passage.js";
import { Questions } from "./questions.js";
import { Problem, askedPairs, explained, exported, sentence } from "./server.js";
import { TextField } from "./text_field.js";
import { Work } from "./work.js";

const $ = id => document.getElementById(id);
const counted = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
const shortened = words => (words.length > 60 ? `${words.slice(0, 60).replace(/\s+\S*$/, "")} …` : words);
const FIELDS = ["text", "number", "way", "language", "min_score", "about"];

const NOTHING = "Try another part of the text, or a lower minimum score.";

const work = new Work(refresh);
const passage = new Passage($("passage"), id => questions.focus(id));
const questions = new Questions($("questions"), $("question-template"), {
  decide, edit, why, undo, refresh,
  active: id => passage.activate(id),
  toAnswer: id => passage.focus(id) || say("A rejected question has no mark in the text."),
});
const field = new TextField($("text"), { opened, refused: line => fault(line, $("text")), changed: drafted });
let asking = null;  // AbortController of the request under way

function say(line) {
  $("status").textContent = line;
}

// The page may have come before the model was loaded.
function known({ model, warning }) {
  $("model").textContent = model;
  $("warning").textContent = warning;
  $("warning").hidden = !warning;
}

// One line beside the form; `where` is the field that it is about.
function fault(line, where = null) {
  for (const name of [...FIELDS, "api_key"]) $(name).removeAttribute("aria-invalid");
  $("fault").textContent = line;
  if (!line || !where) return;
  where.setAttribute("aria-invalid", "true");
  where.focus();
}

function draft() {
  return Object.fromEntries(FIELDS.map(name => [name, $(name).value]));
}

function setDraft(values) {
  for (const name of FIELDS) if (typeof values?.[name] === "string") $(name).value = values[name];
  field.counted();
}

function refresh() {
  const { text, language, pairs, accepted } = work;
  const rejected = pairs.filter(pair => pair.state === "rejected").length;
  questions.show(pairs, language);
  passage.show(text, pairs, language);
  $("result").hidden = !text;
  $("tools").hidden = !pairs.length;
  $("keys").hidden = !pairs.length;
  $("tally").textContent = `${counted(pairs.length, "question")}: ${accepted.length} accepted, ${rejected} rejected, ${pairs.length - accepted.length - rejected} open.`;
  $("undo").hidden = !work.steps.length;
  $("export").textContent = `Export ${accepted.length} accepted`;
  $("export-fault").textContent = "";
  store();
}

function store() {
  if (!work.store(draft())) say("This text is too large to be kept over a reload of the page.");
}

function drafted() {
  selected();
  store();
}

function opened(name, text) {
  const before = draft();
  $("text").value = text;
  field.counted();
  fault("");
  work.drafted(before, setDraft);
  say(`${name} is open: ${counted(new Offsets(text).toPoints(text.length), "character")}.`);
  $("text").focus();
}

// What is selected, in the field or in the marked text: {text, start, end} without white space at its ends, or null.
function selection() {
  const inPassage = passage.selection();
  const text = inPassage ? work.text : field.text;
  const { start, end } = inPassage ?? field.selection;
  const words = text.slice(start, end);
  const from = start + words.length - words.trimStart().length;
  return words.trim() ? { text, start: from, end: from + words.trim().length } : null;
}

function selected() {
  const span = selection();
  const words = span?.text.slice(span.start, span.end) ?? "";
  for (const button of [$("ask-selection"), $("ask-passage")]) button.setAttribute("aria-disabled", String(!span));
  $("selection").textContent = words && `Selected: “${shortened(words)}”`;
}

function askSelection() {
  const span = selection();
  if (!span) return fault("Select words in the text first: with the mouse, or in the text field with Shift and the arrow keys.", $("text"));
  const { text, start, end } = span;
  return ask(text, [{ text: text.slice(start, end), start: new Offsets(text).toPoints(start) }]);
}

function askAll() {
  const words = $("about").value.trim();
  if (!field.text.includes(words)) return fault($("about").dataset.fault, $("about"));
  return ask(field.text, words ? [{ text: words }] : null);  // the server finds them, as whole words if it can
}

// The field that cannot be used, or null; each has its line in `data-fault`.
function faulty(text) {
  const [number, score] = [$("number"), $("min_score")];
  if (!text.trim()) return $("text");
  if (!Number.isInteger(number.valueAsNumber) || !number.validity.valid) return number;
  return score.validity.valid ? null : score;
}

async function ask(text, answers = null) {
  if (asking) return;
  const wrong = faulty(text);
  fault(wrong?.dataset.fault ?? "", wrong);
  if (wrong) return;
  const { way, language } = draft();
  const number = answers ? 1 : $("number").valueAsNumber;
  const request = { text, number, language, way: way || null, min_score: $("min_score").value ? $("min_score").valueAsNumber : null, answers };
  asking = new AbortController();
  const { signal } = asking;
  $("stop").hidden = false;
  $("result").setAttribute("aria-busy", "true");
  const replaced = text !== work.text && work.pairs.length ? " Undo brings back those of the earlier text." : "";
  const step = work.begin(text, language, Boolean(answers));
  say("Making questions …");
  let [came, reason] = [0, ""];
  $("questions-title").focus();
  try {
    for await (const part of askedPairs(request, { key: $("api_key").value, signal })) {
      signal.throwIfAborted();
      known(part);
      came += work.add(part.pairs);
      reason = sentence(part.reason) || reason;
      if (came) say(`${counted(came, "question")} so far …`);
    }
    say(`${came ? `${counted(came, "new question")}.` : "No new question."} ${came || reason ? reason : NOTHING}${replaced}`.trim());
  } catch (error) {
    failed(error, came, step);
  } finally {
    asking = null;
    $("stop").hidden = true;
    $("result").removeAttribute("aria-busy");
  }
}

function failed(error, came, step) {
  const current = work.steps.includes(step) && work.text;  // neither undone nor cleared
  if (!came) work.takeBack(step);
  if (error.name === "AbortError") return current ? say(`Stopped. ${counted(came, "new question")}.`) : undefined;
  if (!(error instanceof Problem)) throw error;
  say("");
  if (error.status !== 401) return fault(error.message, $("ask-all"));
  $("key-field").hidden = false;
  return fault(error.message, $("api_key"));
}

function decide(id, state) {
  const { state: now, question } = work.pairs.find(pair => pair.id === id);
  const next = now === state ? "open" : state;
  work.change(id, { state: next }, "a decision");
  say(`${{ open: "Open again", accepted: "Accepted", rejected: "Rejected" }[next]}: ${shortened(question)}`);
}

// Returns what is wrong, {field, line}, or undefined.
function edit(id, { question, answer }) {
  const pair = work.pairs.find(one => one.id === id);
  const [asked, given] = [question.trim(), answer.trim()];
  if (!asked) return { field: "question", line: "Write a question, or reject it." };
  if (!given) return { field: "answer", line: "Write an answer that stands in the text." };
  const start = nearest(work.text, given, pair.start);
  if (start < 0) return { field: "answer", line: `“${given}” does not stand in the text like this.` };
  const values = { question: asked, answer: given, start, end: start + given.length, state: "accepted" };
  const edited = asked !== pair.question || given !== pair.answer;
  const proposed = pair.proposed ?? { question: pair.question, answer: pair.answer, start: pair.start };
  if (edited) Object.assign(values, { edited, proposed, scores: {}, reason: "edited by hand" });
  work.change(id, values, "an edit");
  say(`Accepted: ${shortened(asked)}`);
  return undefined;
}

// Where words stand in a text, as near as can be to a place; -1 if nowhere.
function nearest(text, words, place) {
  const [after, before] = [text.indexOf(words, place), text.lastIndexOf(words, place)];
  if (after < 0 || before < 0) return Math.max(after, before);
  return after - place < place - before ? after : before;
}

async function why(id) {
  if (questions.isHeatShown(id)) return questions.hideHeat(id);
  const { text } = work;
  const { question, answer, answer_start } = work.onWire(work.pairs.find(pair => pair.id === id));
  questions.fault(id, "");
  say("Looking for the reason …");
  try {
    const { tokens, metric } = await explained({ text, question, answer, answer_start }, { key: $("api_key").value });
    const places = new Offsets(text);
    const inUnits = tokens.map(({ start, end, weight }) => ({ start: places.toUnits(start), end: places.toUnits(end), weight }));
    const words = questions.showHeat(id, text, inUnits, metric);
    return say(words.length ? `Counts most: ${shortened(words.join(", "))}.` : `No word of the text speaks for this question by ${metric}.`);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    if (error.status !== 404) say("");
    if (error.status !== 404) return questions.fault(id, error.message);
    questions.explains = false;
    say("This server does not explain questions.");
    refresh();
    return questions.focus(id);
  }
}

function undo() {
  const step = work.undo();
  if (!step) return say("There is nothing to undo.");
  if (step.what === "the last request") asking?.abort();
  say(`Undone: ${step.what}.`);
  if (step.id) return questions.focus(step.id);
  const lost = document.activeElement === document.body || $("undo").hidden;  // what had the focus is gone
  return lost ? $("result").hidden ? $("text").focus() : $("questions-title").focus() : undefined;
}

function clear() {
  asking?.abort();
  const before = draft();
  setDraft({ text: "", about: "" });
  work.clear(before, setDraft);
  work.forget();
  fault("");
  $("api_key").value = "";
  say("All is cleared. Undo brings it back until you leave the page.");
  $("text").focus();
}

async function exportAccepted() {
  const format = $("format").value;
  const pairs = format === "preferences" ? work.judged : work.accepted.map(pair => work.onWire(pair));
  const tell = line => { $("export-fault").textContent = line; };
  if (!pairs.length) return tell("Accept a question first.");
  const form = new FormData();
  for (const [name, value] of Object.entries({ text: work.text, language: work.language, format })) form.append(name, value);
  for (const pair of pairs) form.append("pair", JSON.stringify(pair));
  try {
    const { name, blob } = await exported(form, { key: $("api_key").value });
    const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    tell("");
    return say(`${counted(pairs.length, "question")} exported as ${name}.`);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    return tell(error.message);
  }
}

// A page that the server has filled in, because the form was sent before this script ran.
function takeOver() {
  const kept = $("kept");
  if (!kept) return false;
  const pairs = [...kept.querySelectorAll("[name=pair]")].map(box => JSON.parse(box.value));
  Object.assign(work, { text: kept.elements.text.value, language: kept.elements.language.value });
  kept.remove();
  $("passage").replaceChildren();
  work.add(pairs);
  return true;
}

function start() {
  for (const part of document.querySelectorAll("[data-script]")) part.hidden = false;
  if (!takeOver()) setDraft(work.restore());
  $("ask").addEventListener("submit", event => { event.preventDefault(); askAll(); });
  $("text").addEventListener("keydown", event => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    event.shiftKey ? askSelection() : askAll();
  });
  for (const name of ["ask-selection", "ask-passage"]) $(name).addEventListener("click", askSelection);
  $("stop").addEventListener("click", () => { asking?.abort(); $("ask-all").focus(); });
  $("clear").addEventListener("click", clear);
  $("undo").addEventListener("click", undo);
  $("accept-open").addEventListener("click", () => { work.acceptOpen(); say(`${counted(work.accepted.length, "question")} accepted.`); });
  $("export").addEventListener("click", exportAccepted);
  $("ask").addEventListener("input", store);
  document.addEventListener("selectionchange", selected);
  document.addEventListener("keydown", event => {
    if (event.key.toLowerCase() !== "z" || !(event.ctrlKey || event.metaKey) || event.shiftKey) return;
    if (event.target.closest("input, textarea, select")) return;
    event.preventDefault();
    undo();
  });
  refresh();
  selected();
}

start();
