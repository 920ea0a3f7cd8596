// The patterns that a person has marked in a memory: kind, description, and number of prefixes covered.
import { h, replace } from "./dom.js";
import { tinyButton } from "./prompt_parts.js";
import { term } from "./terms.js";

export class PatternList {
  constructor(sheet) {
    this.sheet = sheet;
    this.list = h("ol.pattern-list");
    this.items = [];
    this.addButton = h("button", { type: "button", onclick: () => sheet.add() }, "Add a pattern");
    this.noneButton = h("button", { type: "button", onclick: () => sheet.toggleNone() }, "No pattern");
    this.hint = h("p.soft.hint", "A pattern is shared by at least ", String(sheet.data.least), " ", term("prefix", "prefixes"),
      ": shallow (the same words) or semantic (the same topic or meaning).");
    this.element = h("section", h("h3", "Patterns"), this.hint, this.list, h("div.sheet-buttons", this.addButton, this.noneButton));
  }

  describe(number) {
    const box = this.items[number]?.box;
    box?.focus();
    box?.select();
  }

  refresh() {
    const { answer, chosen, data } = this.sheet;
    if (this.items.length !== answer.patterns.length) this.rebuild(answer.patterns.length);
    answer.patterns.forEach((pattern, number) => this.refreshItem(this.items[number], pattern, number === chosen));
    this.addButton.disabled = answer.patterns.length >= data.most;
    this.noneButton.setAttribute("aria-pressed", String(answer.none));
  }

  rebuild(count) {
    const focused = this.items.findIndex((item) => item.element.contains(document.activeElement));
    this.items = Array.from({ length: count }, (_, number) => this.item(number));
    replace(this.list, this.items.map((item) => item.element));
    if (focused >= 0 && focused >= count) this.sheet.focus();
  }

  item(number) {
    const { sheet } = this;
    const box = h("input", {
      "aria-label": `Description of pattern ${number + 1}`, placeholder: "What the prefixes share", maxlength: "1000",
      oninput: () => sheet.type(number, box.value), onfocus: () => sheet.choose(number),
      onblur: () => sheet.saver.flush(), onkeydown: (event) => this.leave(event),
    });
    const kindButton = (kind) => h("button.tiny", { type: "button", onclick: () => sheet.kind(kind, number) }, kind);
    const kinds = sheet.data.kinds.map(kindButton);
    const count = h("span.covered-count");
    const remove = tinyButton("×", `Remove pattern ${number + 1}`, () => sheet.remove(number));
    const head = h("div.pattern-head", h("strong", String(number + 1)), h("span.kinds", kinds), count, remove);
    const element = h("li.pattern-item", { onclick: () => sheet.choose(number) }, head, box);
    return { element, box, kinds, count };
  }

  // Enter and Escape move the focus from a description back to the prefixes, where the shortcuts work.
  leave(event) {
    if (event.key !== "Enter" && event.key !== "Escape") return;
    event.preventDefault();
    event.stopPropagation();
    this.sheet.focus();
  }

  refreshItem({ element, box, kinds, count }, pattern, chosen) {
    const { kinds: names, least } = this.sheet.data;
    element.classList.toggle("chosen", chosen);
    if (box.value !== pattern.description) box.value = pattern.description; // setting the same text would move the caret
    kinds.forEach((button, i) => button.setAttribute("aria-pressed", String(pattern.kind === names[i])));
    const covered = pattern.covers.length;
    count.textContent = covered < least ? `${covered} of ${least}` : `${covered} prefixes`;
    count.classList.toggle("enough", covered >= least);
  }
}
