// The work of a person on one text: pairs, what was decided about them, and how to take a step back.
// A pair has `start` and `end` of its answer in UTF-16 units of the text, and a `state`: open, accepted or rejected.

import { Offsets } from "./offsets.js";

const STORED = "rl-qg page";  // in sessionStorage: kept over a reload, gone with the tab
const STEPS = 200;

export class Work {
  constructor(changed) {
    this.changed = changed;
    Object.assign(this, { steps: [], text: "", language: "en", pairs: [], next: 1 });
  }

  get accepted() {
    return this.pairs.filter(pair => pair.state === "accepted");
  }

  // Begin questions about a text. Of the same text the decided pairs stay; with `more` the open ones stay too.
  // Returns the step, for `takeBack`.
  begin(text, language, more) {
    const same = text === this.text;
    const before = { text: this.text, language: this.language, pairs: this.pairs };
    const step = { undo: () => Object.assign(this, before), what: "the last request" };
    this.steps.push(step);
    this.text = text;
    this.language = language;
    this.offsets = new Offsets(text);
    this.pairs = same ? before.pairs.filter(pair => more || pair.state !== "open") : [];
    this.changed();
    return step;
  }

  // Add pairs as the server sends them; returns how many are new.
  add(sent) {
    this.offsets ??= new Offsets(this.text);
    const known = new Set(this.pairs.map(pair => `${pair.start} ${pair.question}`));
    const fresh = [];
    for (const pair of sent) {
      const start = this.offsets.toUnits(pair.answer_start);
      if (known.has(`${start} ${pair.question}`)) continue;
      const { question, answer, score, scores, reason } = pair;
      const end = start + answer.length;
      fresh.push({ id: this.next++, question, answer, start, end, score, scores, reason, state: "open", edited: false });
    }
    this.pairs = [...this.pairs, ...fresh];
    this.changed();
    return fresh.length;
  }

  // As the server counts. The model has not scored what a person has edited.
  onWire(pair) {
    this.offsets ??= new Offsets(this.text);
    const { question, answer, start, reason } = pair;
    const { score, scores } = pair.edited ? { score: null, scores: {} } : pair;
    return { question, answer, answer_start: this.offsets.toPoints(start), score, scores, reason };
  }

  // What a person prefers: accepted questions with the score 1, rejected ones and those before an edit with 0.
  get judged() {
    const scored = (pair, score) => ({ ...this.onWire(pair), score, scores: {} });
    return this.pairs.filter(pair => pair.state !== "open").flatMap(pair => {
      const kept = pair.state === "accepted";
      const before = kept && pair.proposed?.start === pair.start && pair.proposed.answer === pair.answer;
      return [scored(pair, Number(kept)), ...(before ? [scored({ ...pair, ...pair.proposed }, 0)] : [])];
    });
  }

  change(id, values, what) {
    const before = this.pairs.find(pair => pair.id === id);
    this.steps.push({ undo: () => this.replace(before), what, id });
    this.replace({ ...before, ...values });
    this.changed();
  }

  acceptOpen() {
    const before = this.pairs;
    this.steps.push({ undo: () => before.filter(pair => pair.state === "open").forEach(pair => this.replace(pair)), what: "accepting all" });
    this.pairs = before.map(pair => (pair.state === "open" ? { ...pair, state: "accepted" } : pair));
    this.changed();
  }

  replace(pair) {
    this.pairs = this.pairs.map(one => (one.id === pair.id ? pair : one));
  }

  clear(draft, restore) {
    const { text, language, pairs } = this;
    this.steps.push({ undo: () => { Object.assign(this, { text, language, pairs }); restore(draft); }, what: "clearing" });
    Object.assign(this, { text: "", pairs: [], offsets: undefined });
    this.changed();
  }

  // Another text in the field: taken back as a step too.
  drafted(draft, restore) {
    this.steps.push({ undo: () => restore(draft), what: "opening the file" });
    this.changed();
  }

  // Undo a step if it is the last one.
  takeBack(step) {
    if (this.steps.at(-1) === step) this.undo();
  }

  undo() {
    const step = this.steps.pop();
    if (!step) return null;
    step.undo();
    this.offsets = undefined;
    this.changed();
    return step;
  }

  store(draft) {
    this.steps = this.steps.slice(-STEPS);
    const { text, language, pairs, next } = this;
    try {
      sessionStorage.setItem(STORED, JSON.stringify({ draft, text, language, pairs, next }));
      return true;
    } catch {
      return false;  // full, or switched off
    }
  }

  // Returns the draft that was stored, or null.
  restore() {
    try {
      const { draft, ...stored } = JSON.parse(sessionStorage.getItem(STORED));
      Object.assign(this, stored);
      return draft;
    } catch {
      return null;
    }
  }

  forget() {
    try {
      sessionStorage.removeItem(STORED);
    } catch {
      // Switched off: nothing is stored.
    }
  }
}
