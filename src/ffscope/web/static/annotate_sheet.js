// One memory to annotate: its prefixes, the person's marks and patterns. Patterns found by programs are not shown.
import { postJson } from "./requests.js";
import { DraftSaver } from "./annotate_save.js";
import {
  addedPattern, grownSteps, plainAnswer, removedPattern, restoredSteps, sameAnswer, toggledMark, withoutBlanks, withPattern,
} from "./annotate_steps.js";
import { PatternList } from "./annotate_patterns.js";
import { h, replace } from "./dom.js";
import { prefixTokens } from "./tokens.js";

// The JSON of "L3.17" is at /annotate/L3/17.json
export function sheetPath(memory) {
  return `/annotate/${memory.replace(".", "/")}`;
}

export class AnnotateSheet {
  constructor(page, data) {
    Object.assign(this, { page, data, memory: data.memory, current: 0, chosen: 0, future: [] });
    this.steps = restoredSteps(data);
    this.error = h("div", { "aria-live": "assertive" });
    this.saver = new DraftSaver(`${sheetPath(data.memory)}/draft.json`, page.annotator, {
      study: page.study,
      say: (sentence) => {
        replace(this.error);
        page.saved(sentence, data.memory);
      },
      fail: (sentence) => this.showError(`Not saved. ${sentence} Your marks stay on this page.`),
    });
    this.rows = data.triggers.map((row, i) => this.row(row, i));
    this.patterns = new PatternList(this);
    this.element = this.build();
    this.refresh();
    this.point(0);
    const unsaved = this.saver.unsavedBefore(this.answer);
    if (unsaved !== null) this.step(unsaved);
  }

  get answer() {
    return this.steps.at(-1);
  }

  build() {
    const list = h("ol.sheet-prefixes", { "aria-label": "Prefixes" }, this.rows.map((row) => row.element));
    const noTriggers = h("p.empty", "This memory has no triggers, so there is nothing to annotate. Skip it.");
    const side = h("div.sheet-side", this.patterns.element, this.error, this.buttons());
    return h("div.sheet", h("div", this.rows.length ? list : noTriggers), side);
  }

  buttons() {
    const button = (word, action, kind = "button") => h(kind, { type: "button", onclick: action }, word);
    this.finish = button("Done, next", () => this.done(), "button.main");
    return h("div.sheet-buttons", this.finish, button("Skip", () => this.page.skip()), button("Back", () => this.page.back()),
      button("Undo", () => this.undo()), button("Redo", () => this.redo()));
  }

  // Only the prefix and the next token, as on the sheets of `ffscope annotate`; the coefficient is not shown.
  row(row, index) {
    const prefix = { ...row, tokens: row.tokens.slice(0, row.position + 1), coefficient: null, agrees: null };
    const marks = h("span.sheet-marks");
    const element = h("li.sheet-prefix", { tabindex: "-1", onfocus: () => this.point(index), onclick: () => this.point(index) },
      h("span.sheet-rank", String(row.rank)), prefixTokens(prefix), marks);
    return { element, marks, rank: row.rank };
  }

  point(index) {
    if (!this.rows.length) return;
    this.rows[this.current].element.setAttribute("tabindex", "-1");
    this.rows[this.current].element.removeAttribute("aria-current");
    this.current = index;
    this.rows[index].element.setAttribute("tabindex", "0");
    this.rows[index].element.setAttribute("aria-current", "true");
  }

  move(by) {
    const to = Math.min(this.rows.length - 1, Math.max(0, this.current + by));
    this.point(to);
    this.focus();
    this.rows[to]?.element.scrollIntoView({ block: "nearest" });
  }

  focus() {
    this.rows[this.current]?.element.focus({ preventScroll: true });
  }

  // Adds a step, shows it and saves it.
  step(answer) {
    const plain = plainAnswer(answer);
    if (sameAnswer(plain, this.answer)) return;
    this.steps = grownSteps(this.steps, plain);
    this.future = [];
    this.saver.step(plain);
    this.refresh();
  }

  type(number, description) {
    const plain = plainAnswer(withPattern(this.answer, { description }, number));
    this.steps = grownSteps(this.steps, plain);
    this.future = [];
    this.saver.typing(plain);
    this.refresh();
  }

  undo() {
    if (this.steps.length < 2) return;
    this.future.push(this.answer);
    this.goTo(this.steps.slice(0, -1));
  }

  redo() {
    if (this.future.length) this.goTo([...this.steps, this.future.pop()]);
  }

  goTo(steps) {
    this.steps = steps;
    this.saver.step(this.answer);
    this.refresh();
  }

  mark(number, index = this.current) {
    const row = this.rows[index];
    const count = this.answer.patterns.length;
    if (!row || number > count || number >= this.data.most) return;
    this.point(index);
    this.chosen = number;
    this.step(toggledMark(number === count ? addedPattern(this.answer) : this.answer, number, row.rank));
  }

  // Adds a pattern and puts the caret into its description.
  add() {
    if (this.answer.patterns.length >= this.data.most) return;
    this.chosen = this.answer.patterns.length;
    this.step(addedPattern(this.answer));
    this.describe();
  }

  remove(number) {
    if (this.answer.patterns[number]) this.step(removedPattern(this.answer, number));
  }

  kind(kind, number = this.chosen) {
    if (!this.answer.patterns[number]) return;
    this.chosen = number;
    this.step(withPattern(this.answer, { kind }, number));
  }

  toggleNone() {
    this.step({ patterns: [], none: !this.answer.none });
  }

  choose(number) {
    this.chosen = number;
    this.refresh();
  }

  chooseNext() {
    if (this.answer.patterns.length) this.choose((this.chosen + 1) % this.answer.patterns.length);
  }

  describe() {
    this.patterns.describe(this.chosen);
  }

  refresh() {
    const { patterns } = this.answer;
    this.chosen = Math.max(0, Math.min(this.chosen, patterns.length - 1));
    const count = Math.min(patterns.length + 1, this.data.most);
    this.rows.forEach((row, index) => this.refreshMarks(row, index, count));
    this.patterns.refresh();
  }

  refreshMarks({ marks, rank }, index, count) {
    while (marks.childElementCount > count) marks.lastElementChild.remove();
    while (marks.childElementCount < count) marks.append(this.markButton(marks.childElementCount, index));
    Array.from(marks.children).forEach((button, number) => {
      const pattern = this.answer.patterns[number];
      button.setAttribute("aria-pressed", String(Boolean(pattern?.covers.includes(rank))));
      button.classList.toggle("free", !pattern);
    });
  }

  // Not in the tab order, where there would be 150 of them: the digit keys do the same.
  markButton(number, index) {
    const mark = (event) => {
      event.stopPropagation();
      this.mark(number, index);
      this.focus();
    };
    const attributes = { type: "button", tabindex: "-1", "aria-label": `Pattern ${number + 1}`, onclick: mark };
    return h("button.mark", attributes, String(number + 1));
  }

  showError(sentence) {
    replace(this.error, h("p.problem", h("bdi", String(sentence).slice(0, 1000))));
  }

  async done() {
    if (this.finish.disabled) return;
    this.finish.disabled = true;
    try {
      await this.saver.settled();
      const answer = withoutBlanks(this.answer);
      await postJson(`${sheetPath(this.memory)}.json`, { annotator: this.page.annotator, ...answer });
      this.saver.finished(answer);
      this.page.finished(this.memory);
    } catch (error) {
      this.showError(error.message);
    } finally {
      this.finish.disabled = false;
    }
  }
}
