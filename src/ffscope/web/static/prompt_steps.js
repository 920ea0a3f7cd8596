// One position, layer by layer: the prediction before and after each feed-forward layer, and its largest memories.
import { h, replace, share, token, whole } from "./dom.js";
import { changeButtons } from "./interventions.js";
import { layerLink } from "./links.js";
import { headRow, promoted, weightedMemory } from "./prompt_parts.js";
import { term } from "./terms.js";

export class PromptSteps {
  constructor(page) {
    this.page = page;
    this.title = h("h2", { tabindex: "-1" });
    this.body = h("tbody");
    const heads = headRow(["Layer", "Residual", "Feed-forward", "Output", "Case", "Active", "Largest memories"], ["Active"]);
    const scroller = h("div.own-scroll", { tabindex: "0", role: "region", "aria-label": "Layer by layer" });
    scroller.append(h("table.prompt-table.steps", heads, this.body));
    this.element = h("section", this.title, this.explained(), scroller);
  }

  explained() {
    const cases = Object.entries(this.page.about.cases).map(([name, meaning]) => [h("dt", this.caseLabel(name)), h("dd", meaning)]);
    return h("details.cases", h("summary", "What the columns mean"),
      h("p.soft", "Residual: the top token before the feed-forward layer. Feed-forward: the top token of the ", term("update"),
        " that the layer adds. Output: the top token of their sum. Active: the number of memories with a coefficient above 0. ",
        "The largest memories are listed with their coefficient and the tokens that they promote here; with a negative ",
        "coefficient, those that the ", term("value"), " suppresses. The case says which component determines the output:"),
      h("dl", cases));
  }

  show(reading) {
    const layer = this.layerInFocus();
    const { position, tokens } = reading;
    replace(this.title, "Layer by layer after ", token(tokens[position]), h("span.soft", ` at position ${position}`));
    replace(this.body, reading.steps.map((step) => this.row(step)));
    // A pressed button is replaced together with its row: keep the keyboard focus in the same layer.
    if (layer !== null) this.body.querySelector(`[data-layer="${layer}"] a`)?.focus({ preventScroll: true });
  }

  layerInFocus() {
    return document.activeElement?.closest?.(".steps tr")?.dataset.layer ?? null;
  }

  row(step) {
    const name = h("th", { scope: "row" }, h("a", { href: layerLink(step.layer) }, `L${step.layer}`));
    return h("tr", { "data-layer": String(step.layer) }, name,
      h("td", likely(step.before)), h("td", token(step.ff.token)), h("td", likely(step.after)), h("td", this.caseLabel(step.case)),
      h("td.number", whole(step.active)), h("td", h("ul.chips", step.memories.map((memory) => this.chip(memory)))));
  }

  caseLabel(name) {
    const { cases } = this.page.about;
    return h(`span.case.case-${Object.hasOwn(cases, name) ? name : "other"}`, { title: cases[name] }, name);
  }

  chip({ memory, coefficient, promotes }) {
    return h("li.weighty", weightedMemory(memory, coefficient), promoted(promotes, coefficient), changeButtons(this.page, memory));
  }
}

function likely({ token: text, probability }) {
  return h("span.likely", token(text), " ", h("span.soft", share(probability)));
}
