// The text with its answers marked. Each mark leads to its questions, and is described by them.

import { partsOf } from "./offsets.js";

export class Passage {
  // `toQuestion(id)` is called when a mark is followed.
  constructor(box, toQuestion) {
    Object.assign(this, { box, toQuestion, active: null, links: new Map() });
  }

  show(text, pairs, language) {
    const shown = JSON.stringify([text, language, pairs.map(({ id, start, end, state }) => [id, start, end, state])]);
    if (shown === this.shown) return;
    const focused = this.box.contains(document.activeElement) ? document.activeElement.dataset.start : undefined;
    this.shown = shown;
    this.links.clear();
    this.box.lang = language;
    const marked = pairs.filter(pair => pair.state !== "rejected" && pair.end > pair.start);
    this.box.replaceChildren(...partsOf(text, marked).map(part => (part.spans.length ? this.mark(part) : document.createTextNode(part.text))));
    this.activate(this.active);
    if (focused !== undefined) this.box.querySelector(`[data-start="${focused}"]`)?.focus({ preventScroll: true });
  }

  mark({ text, start, spans }) {
    const [mark, link] = [document.createElement("mark"), document.createElement("a")];
    const ids = spans.map(pair => pair.id);
    link.textContent = text;
    link.href = `#question-${ids[0]}`;
    link.dataset.start = start;
    link.setAttribute("aria-describedby", ids.map(id => `title-${id}`).join(" "));
    link.addEventListener("click", event => {
      event.preventDefault();
      const after = ids[(ids.indexOf(this.followed) + 1) % ids.length];  // again: the next question of the same words
      this.followed = after;
      this.toQuestion(after);
    });
    ids.forEach(id => this.links.set(id, [...(this.links.get(id) ?? []), link]));
    mark.append(link);
    return mark;
  }

  // The marks of the question that has the focus stand out.
  activate(id) {
    this.active = id;
    for (const mark of this.box.querySelectorAll("mark.active")) mark.classList.remove("active");
    for (const link of this.links.get(id) ?? []) link.parentElement.classList.add("active");
  }

  focus(id) {
    const [link] = this.links.get(id) ?? [];
    this.followed = null;
    link?.focus();
    return Boolean(link);
  }

  // {start, end} of what is selected here, in units of the text; null if nothing is.
  selection() {
    const chosen = document.getSelection();
    if (!chosen.rangeCount || chosen.isCollapsed) return null;
    const range = chosen.getRangeAt(0);
    if (!this.box.contains(range.startContainer) || !this.box.contains(range.endContainer)) return null;
    const before = document.createRange();
    before.setStart(this.box, 0);
    before.setEnd(range.startContainer, range.startOffset);
    const start = before.toString().length;
    return { start, end: start + range.toString().length };
  }
}
