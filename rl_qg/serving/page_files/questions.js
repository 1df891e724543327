// The list of questions: one card each, from the page's template. All text is set with textContent.

import { partsOf } from "./offsets.js";

const HEAT = 5;  // shades
const WORDS = 6;  // named in words, for people who do not see the shades
const number = value => (typeof value === "number" ? String(Number(value.toPrecision(3))) : "–");

export class Questions {
  // `acts` has what a card can ask for: decide(id, state), edit(id, values) -> fault, why(id), toAnswer(id), undo().
  constructor(list, template, acts) {
    Object.assign(this, { list, template, acts, cards: new Map(), explains: "explains" in list.dataset });
    list.addEventListener("keydown", event => this.onKey(event));
    list.addEventListener("focusin", event => this.acts.active(this.idOf(event.target)));
  }

  // Cards are changed in place, so that focus and screen readers stay where they are.
  show(pairs, language) {
    const wanted = new Set(pairs.map(pair => pair.id));
    for (const [id, card] of this.cards) if (!wanted.has(id)) { card.remove(); this.cards.delete(id); }
    pairs.forEach((pair, at) => {
      if (!this.cards.has(pair.id)) this.cards.set(pair.id, this.made(pair.id));
      const card = this.cards.get(pair.id);
      if (this.list.children[at] !== card) this.list.insertBefore(card, this.list.children[at] ?? null);
      this.fill(card, pair, language);
    });
  }

  made(id) {
    const card = this.template.content.firstElementChild.cloneNode(true);
    const part = name => card.querySelector(name);
    card.id = `question-${id}`;
    card.dataset.pair = id;
    part(".asked").id = `title-${id}`;
    card.setAttribute("aria-labelledby", `title-${id}`);
    for (const button of card.querySelectorAll("button, meter, .heat .passage")) button.setAttribute("aria-describedby", `title-${id}`);
    part(".to-answer").href = `#answer-${id}`;
    part(".to-answer").addEventListener("click", event => { event.preventDefault(); this.acts.toAnswer(id); });
    part(".accept").addEventListener("click", () => this.acts.decide(id, "accepted"));
    part(".reject").addEventListener("click", () => this.acts.decide(id, "rejected"));
    part(".edit").addEventListener("click", () => this.openEditor(card));
    part(".why").addEventListener("click", () => this.acts.why(id));
    part(".cancel").addEventListener("click", () => this.closeEditor(card));
    part(".editor").addEventListener("submit", event => { event.preventDefault(); this.saveEditor(card); });
    part(".editor").addEventListener("keydown", event => {
      if (event.key === "Escape") this.closeEditor(card);
      else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.saveEditor(card);
    });
    return card;
  }

  fill(card, pair, language) {
    const part = name => card.querySelector(name);
    const filled = JSON.stringify([pair, language, this.explains]);
    if (card.dataset.filled === filled) return;
    card.dataset.filled = filled;
    card.dataset.state = pair.state;
    part(".asked").textContent = pair.question;
    part(".asked").lang = part(".to-answer").lang = language;
    part(".to-answer").textContent = pair.answer;
    part(".accept").setAttribute("aria-pressed", String(pair.state === "accepted"));
    part(".reject").setAttribute("aria-pressed", String(pair.state === "rejected"));
    part(".why").hidden = !this.explains;
    part(".chip").hidden = pair.state === "open" && !pair.edited;
    part(".chip").textContent = [pair.edited ? "edited" : "", pair.state === "open" ? "" : pair.state].filter(Boolean).join(", ");
    // The scores belong to the model's question, not to an edited one.
    for (const name of ["meter", ".value", ".scores"]) part(name).hidden = pair.edited;
    part("meter").value = pair.score ?? 0;
    part(".value").textContent = typeof pair.score === "number" ? pair.score.toFixed(2) : "";
    part(".reason").textContent = pair.reason ?? "";
    part(".scores dl").replaceChildren(...Object.entries(pair.scores ?? {}).map(([name, value]) => {
      const row = document.createElement("div");
      row.append(element("dt", name), element("dd", number(value)));
      return row;
    }));
    const [question, answer] = [part("[name=question]"), part("[name=answer]")];
    if (part(".editor").hidden) [question.value, answer.value] = [pair.question, pair.answer];
  }

  openEditor(card) {
    this.setEditor(card, true);
    card.querySelector("[name=question]").focus();
  }

  closeEditor(card) {
    this.setEditor(card, false);
    delete card.dataset.filled;
    this.acts.refresh();
    card.querySelector(".edit").focus();
  }

  setEditor(card, open) {
    card.querySelector(".editor").hidden = !open;
    card.querySelector(".decide").hidden = open;
    card.querySelector(".editor .fault").textContent = "";
  }

  saveEditor(card) {
    const [question, answer] = ["question", "answer"].map(name => card.querySelector(`[name=${name}]`));
    const fault = this.acts.edit(Number(card.dataset.pair), { question: question.value, answer: answer.value });
    card.querySelector(".editor .fault").textContent = fault?.line ?? "";
    for (const field of [question, answer]) field.setAttribute("aria-invalid", String(field.name === fault?.field));
    if (fault) card.querySelector(`[name=${fault.field}]`).focus();
    else this.closeEditor(card);
  }

  // A fault of one question, beside it.
  fault(id, line) {
    this.cards.get(id).querySelector(":scope > .fault").textContent = line;
  }

  isHeatShown(id) {
    return !this.cards.get(id).querySelector(".heat").hidden;
  }

  hideHeat(id) {
    const card = this.cards.get(id);
    card.querySelector(".heat").hidden = true;
    card.querySelector(".why").setAttribute("aria-expanded", "false");
  }

  // `tokens` has {start, end, weight}, in units of the text. Returns the words that weigh most.
  showHeat(id, text, tokens, metric) {
    const card = this.cards.get(id);
    const most = Math.max(...tokens.map(token => Math.abs(token.weight)), 0) || 1;
    const shade = token => Math.min(HEAT, Math.round((Math.abs(token.weight) / most) * HEAT));
    const parts = partsOf(text, tokens).map(({ text: words, spans: [token] }) => {
      if (!token || !shade(token)) return document.createTextNode(words);
      const span = element("span", words);
      span.className = `${token.weight < 0 ? "against" : "for"}-${shade(token)}`;
      span.title = number(token.weight);
      return span;
    });
    card.querySelector(".heat .passage").replaceChildren(...parts);
    const strongest = [...tokens].sort((a, b) => Math.abs(b.weight) - Math.abs(a.weight)).filter(shade).slice(0, WORDS);
    const named = strongest.map(token => `${text.slice(token.start, token.end).trim()} (${number(token.weight)})`).join(", ");
    const nothing = `No word of the text speaks for this question by ${metric}: it may not be about this text. Read it before you accept it.`;
    card.querySelector(".heat-words").textContent = named ? `What counts most for ${metric}: ${named}.` : nothing;
    card.querySelector(".heat").hidden = false;
    card.querySelector(".why").setAttribute("aria-expanded", "true");
    return [...new Set(strongest.map(token => text.slice(token.start, token.end).trim()))];
  }

  focus(id) {
    this.cards.get(id)?.focus();
  }

  idOf(target) {
    const id = target.closest?.("[data-pair]")?.dataset.pair;
    return id === undefined ? null : Number(id);
  }

  onKey(event) {
    const id = this.idOf(event.target);
    if (id === null || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, .heat .passage")) return;
    const card = this.cards.get(id);
    const keys = {
      ArrowDown: () => card.nextElementSibling?.focus(),
      ArrowUp: () => card.previousElementSibling?.focus(),
      a: () => this.acts.decide(id, "accepted"),
      r: () => this.acts.decide(id, "rejected"),
      e: () => this.openEditor(card),
      w: () => this.explains && this.acts.why(id),
      m: () => this.acts.toAnswer(id),
      u: () => this.acts.undo(),
    };
    const act = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }
}

function element(name, text) {
  const made = document.createElement(name);
  made.textContent = text;
  return made;
}
