// The memories of all layers, ranked at the selected position: by their contribution to the predicted token's logit, or by size.
import { h, replace, share, token } from "./dom.js";
import { changeButtons } from "./interventions.js";
import { ModelRequest } from "./prompt_request.js";
import { runQuestion } from "./prompt_link.js";
import { headRow, promoted, pushBar, weightedMemory } from "./prompt_parts.js";

const FIRST_ROWS = 12;
const REQUESTED_ROWS = 50;
const RANKINGS = { "": "push on the logit of the predicted token", size: "size of what the memory writes" };

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
    const { memories, note } = ranked;
    const rows = this.all ? memories : memories.slice(0, FIRST_ROWS);
    const largest = Math.max(...memories.map(({ push }) => Math.abs(push ?? 0)), 1e-9);
    const pushes = memories.some(({ push }) => push !== null);
    const heads = ["Memory", pushes && "Push", "Share of layer", "Share of all", "Change", "Promoted tokens"].filter(Boolean);
    replace(this.summary, rankingWords(ranked), note && h("span", ` ${note}`));
    replace(this.table, headRow(heads, ["Share of layer", "Share of all"]),
      h("tbody", rows.map((row) => this.row(row, { pushes, largest }))));
    this.more.hidden = rows.length === memories.length;
    this.more.textContent = `Show ${memories.length}`;
  }

  row({ memory, coefficient, share_of_layer: ofLayer, share_of_all: ofAll, push, promotes }, { pushes, largest }) {
    return h("tr", h("th", { scope: "row" }, weightedMemory(memory, coefficient)), pushes && h("td", pushBar(push, largest)),
      h("td.number", share(ofLayer)), h("td.number", share(ofAll)),
      h("td.change-buttons", changeButtons(this.page, memory)), h("td", promoted(promotes, coefficient)));
  }
}

function rankingWords({ by, target, tokens, position }) {
  const after = [" after ", token(tokens[position]), ". "];
  const shares = "The shares are of the sum of |coefficient| × ‖value‖ over the layer and over all layers.";
  if (by === "size") return ["Ranked by |coefficient| × ‖value‖, the size of what each memory adds to the residual", after, shares];
  return ["Ranked by push: what each memory adds directly to the logit of ", token(target.token), ", the predicted token", after,
    shares];
}
