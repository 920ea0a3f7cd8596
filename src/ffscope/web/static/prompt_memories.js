// The memories of all layers, ranked at the selected position: by their contribution to the predicted token's logit, by their
// estimated effect on its log-probability, or by size.
import { h, replace, share, token } from "./dom.js";
import { changeButtons } from "./interventions.js";
import { ModelRequest } from "./prompt_request.js";
import { runQuestion } from "./prompt_link.js";
import { headRow, promoted, pushBar, weightedMemory } from "./prompt_parts.js";

const FIRST_ROWS = 12;
const REQUESTED_ROWS = 50;
const BARS = { push: "Push", effect: "Effect" };
const SHARES = ["Share of layer", "Share of all"];
const RANKINGS = {
  "": "push on the logit of the predicted token",
  effect: "effect on the predicted token’s log-probability",
  size: "size of what the memory writes",
};

export class PromptMemories {
  constructor(page) {
    this.page = page;
    this.all = false;
    this.request = new ModelRequest("prompt-memories");
    this.summary = h("p.soft");
    const options = Object.entries(RANKINGS).map(([value, text]) => h("option", { value }, text));
    this.ranking = h("select", { onchange: () => this.choose() }, options);
    this.table = h("table.prompt-table.pushes.stacked");
    this.more = h("button", { type: "button", hidden: true, onclick: () => this.showAll() });
    this.result = h("div", this.summary, h("div.own-scroll", this.table), this.more);
    this.element = h("section", h("h2", "Memories with the largest effect, over all layers"),
      h("label.prompt-choice", "Rank by ", this.ranking), this.request.status, this.request.error, this.result);
  }

  choose() {
    this.page.keep({ by: this.ranking.value });
    this.read({ ...this.page.link });
  }

  async read(link) {
    const { position, by } = link;
    this.ranking.value = Object.hasOwn(RANKINGS, by) ? by : "";
    const parameters = { ...runQuestion(link), position, by, count: REQUESTED_ROWS };
    const question = JSON.stringify(parameters);
    if (question === this.question) return;
    this.question = question;
    const ranked = await this.request.ask("/prompt/memories.json", parameters, { busy: this.result });
    if (ranked !== null) this.show(ranked);
    else if (question === this.question) {
      this.question = null; // it failed, and may be asked again
      replace(this.table);
      replace(this.summary);
      this.more.hidden = true;
    }
  }

  showAll() {
    this.all = true;
    this.show(this.ranked);
  }

  show(ranked) {
    this.ranked = ranked;
    const { memories, note, by } = ranked;
    const rows = this.all ? memories : memories.slice(0, FIRST_ROWS);
    // An effect sums over all tokens, which the sizes at one of them do not explain; notes are about pushes.
    const byEffect = by === "effect";
    const measure = ["effect", "push"].find((name) => memories.some((row) => row[name] !== null));
    const largest = Math.max(...memories.map((row) => Math.abs(row[measure] ?? 0)), 1e-9);
    const shares = byEffect ? [] : SHARES;
    const heads = ["Memory", BARS[measure], ...shares, "Change", "Promoted tokens"].filter(Boolean);
    replace(this.summary, rankingWords(ranked), note && !byEffect && h("span", ` ${note}`));
    replace(this.table, headRow(heads, SHARES), h("tbody", rows.map((row) => this.row(row, { measure, largest, byEffect }))));
    this.more.hidden = rows.length === memories.length;
    this.more.textContent = `Show ${memories.length}`;
  }

  row(row, { measure, largest, byEffect }) {
    const { memory, coefficient, share_of_layer: ofLayer, share_of_all: ofAll, promotes } = row;
    return h("tr", h("th", { scope: "row" }, weightedMemory(memory, coefficient)),
      measure && h("td", pushBar(row[measure], largest)),
      !byEffect && [ofLayer, ofAll].map((part) => h("td.number", share(part))),
      h("td.change-buttons", changeButtons(this.page, memory)), h("td", promoted(promotes, coefficient)));
  }
}

function rankingWords({ by, target, tokens, position }) {
  if (by === "effect") return effectWords(token(target.token), token(tokens[position]));
  const after = [" after ", token(tokens[position]), ". "];
  const shares = "The shares are of the sum of |coefficient| × ‖value‖ over the layer and over all layers.";
  if (by === "size") return ["Ranked by |coefficient| × ‖value‖, the size of what each memory adds to the residual", after, shares];
  return ["Ranked by push: what each memory adds directly to the logit of ", token(target.token), ", the predicted token", after,
    shares];
}

function effectWords(predicted, last) {
  return ["Ranked by effect: the change in the log-probability of ", predicted, ", the token predicted after ", last, ", if the ",
    "memory’s coefficient were 0 at every token of the text (natural logarithm). A negative effect means that the memory supports ",
    "the token. Estimated to first order from the gradient; switch the memory off to see the exact change. The coefficient shown ",
    "is that at the selected token; a memory may act through other tokens alone."];
}
