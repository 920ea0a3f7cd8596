// One position, layer by layer: what it held before, the memories that weigh most, what it holds after.
import { h, replace, share, token, whole } from "./dom.js";
import { changeButtons } from "./interventions.js";
import { layerLink } from "./links.js";
import { headRow, promoted, weightedMemory } from "./prompt_parts.js";

const CASES = {
  agreement: "residual, FF and output have the same top token",
  residual: "only the residual's top token is the output's",
  ffn: "only the FF's top token is the output's",
  composition: "the output's top token is neither's",
};

export class PromptSteps {
  constructor(page) {
    this.page = page;
    this.title = h("h2", { tabindex: "-1" });
    this.body = h("tbody");
    const heads = headRow(["Layer", "Before", "FF", "After", "Case", "Active", "Memories that weigh most"], ["Active"]);
    const scroller = h("div.own-scroll", { tabindex: "0", role: "region", "aria-label": "Layer by layer" });
    scroller.append(h("table.prompt-table.steps", heads, this.body));
    this.element = h("section", this.title, this.explained(), scroller);
  }

  explained() {
    const cases = Object.entries(CASES).map(([name, words]) => [h("dt", caseWord(name)), h("dd", words)]);
    return h("details.cases", h("summary", "What the columns say"),
      h("p.soft", "Before is the top token of the residual, FF that of what the feed-forward layer adds, ",
        "after that of their sum, the output. Active memories have a coefficient above 0. ",
        "A memory stands with its coefficient and the tokens that it promotes here: with a negative coefficient, ",
        "those that its value suppresses."),
      h("dl", cases));
  }

  show(reading) {
    const layer = this.layerInFocus();
    const { position, tokens } = reading;
    replace(this.title, "Layer by layer after ", token(tokens[position]), h("span.soft", ` at position ${position}`));
    replace(this.body, reading.steps.map((step) => this.row(step)));
    // A button that was pressed here is gone with its row; who works by keyboard goes on from the same layer.
    if (layer !== null) this.body.querySelector(`[data-layer="${layer}"] a`)?.focus({ preventScroll: true });
  }

  layerInFocus() {
    return document.activeElement?.closest?.(".steps tr")?.dataset.layer ?? null;
  }

  row(step) {
    const name = h("th", { scope: "row" }, h("a", { href: layerLink(step.layer) }, `L${step.layer}`));
    return h("tr", { "data-layer": String(step.layer) }, name,
      h("td", likely(step.before)), h("td", token(step.ff.token)), h("td", likely(step.after)), h("td", caseWord(step.case)),
      h("td.number", whole(step.active)), h("td", h("ul.chips", step.memories.map((one) => this.chip(one)))));
  }

  chip({ memory, coefficient, promotes }) {
    return h("li.weighty", weightedMemory(memory, coefficient), promoted(promotes, coefficient), changeButtons(this.page, memory));
  }
}

function likely({ token: text, probability }) {
  return h("span.likely", token(text), " ", h("span.soft", share(probability)));
}

function caseWord(name) {
  return h(`span.case.case-${Object.hasOwn(CASES, name) ? name : "other"}`, { title: CASES[name] }, name);
}
