// The field of the text: typed, pasted, dropped or read from a file.

import { Offsets } from "./offsets.js";

const ENDINGS = /\.(txt|text|md|markdown)$/i;
const OTHER_KIND = "only .txt and .md files can be opened here. Save it as plain text; rl-qg ask reads .html and .pdf files.";

export class TextField {
  // `acts`: opened(name, text), refused(line), changed().
  constructor(area, acts) {
    Object.assign(this, { area, acts, limit: Number(document.getElementById("count").dataset.limit) });
    area.addEventListener("input", () => this.counted());
    area.addEventListener("select", acts.changed);
    document.getElementById("file").addEventListener("change", event => {
      this.open(event.target.files);
      event.target.value = "";
    });
    this.acceptDrops();
  }

  // A lone half of a surrogate pair cannot be sent; the replacement has the same length.
  get text() {
    return this.area.value.toWellFormed?.() ?? this.area.value;
  }

  get selection() {
    return { start: this.area.selectionStart, end: this.area.selectionEnd };
  }

  counted() {
    const { text } = this;
    const [count, limit] = [new Offsets(text).toPoints(text.length), this.limit].map(one => one.toLocaleString("en"));
    document.getElementById("count").textContent = text ? `${count} of at most ${limit} characters.` : `At most ${limit} characters.`;
  }

  // A file dropped beside the field must not replace the page.
  acceptDrops() {
    const form = this.area.form;
    const hasFile = event => [...(event.dataTransfer?.types ?? [])].includes("Files");
    document.addEventListener("dragover", event => {
      if (!hasFile(event)) return;
      event.preventDefault();
      form.classList.add("dropping");
    });
    document.addEventListener("dragleave", event => event.relatedTarget || form.classList.remove("dropping"));
    document.addEventListener("drop", event => {
      form.classList.remove("dropping");
      if (!hasFile(event)) return;
      event.preventDefault();
      this.open(event.dataTransfer.files);
    });
  }

  async open(files) {
    const [file] = files;
    if (!file) return;
    if (files.length > 1) return this.acts.refused("Open one file at a time.");
    if (!ENDINGS.test(file.name)) return this.acts.refused(`${file.name}: ${OTHER_KIND}`);
    if (file.size > 4 * this.limit + 3) return this.acts.refused(`${file.name} is longer than ${this.limit.toLocaleString("en")} characters: open a part of it.`);
    try {
      const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
      return this.acts.opened(file.name, text.replace(/\r\n?/g, "\n"));
    } catch {
      return this.acts.refused(`${file.name} is not text in UTF-8: save it as UTF-8.`);
    }
  }
}
