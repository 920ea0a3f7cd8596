// The memories of all layers, ranked for the chosen position: by push on the predicted token's logit, or by what each writes.
import { h, replace, share, token } from "./dom.js";
import { changeButtons } from "./interventions.js";
import { ModelRequest } from "./prompt_request.js";
import { runQuestion } from "./prompt_link.js";
import { headRow, promoted, pushBar, weightedMemory } from "./prompt_parts.js";

const FIRST_ROWS = 12;
const ASKED_ROWS = 50;
const RANKINGS = { "": "push on the predicted token", size: "size" };

export class PromptMemories {
  constructor(page) {
    this.page = page;
    this.all = false;
    this.request = new ModelRequest("prompt-memories");
    this.words = h("p.soft");
    const options = Object.entries(RANKINGS).map(([value, word]) => h("option", { value }, word));
    this.ranking = h("select", { onchange: () => this.choose() }, options);
    this.table = h("table.prompt-table.pushes.stacked");
    this.more = h("button", { type: "button", hidden: true, onclick: () => this.showAll() });
    this.result = h("div", this.words, h("div.own-scroll", this.table), this.more);
    this.element = h("section", h("h2", "Memories of all layers"), h("label.prompt-choice", "Rank by ", this.ranking),
      this.request.status, this.request.trouble, this.result);
  }

  choose() {
    this.page.keep({ by: this.ranking.value });
    this.read({ ...this.page.link });
  }

  async read(link) {
    const { position, by } = link;
    this.ranking.value = Object.hasOwn(RANKINGS, by) ? by : "";
    const asked = { ...runQuestion(link), position, by, count: ASKED_ROWS };
    const question = JSON.stringify(asked);
    if (question === this.question) return;
    this.question = question;
    const ranked = await this.request.getJson("/prompt/memories.json", asked, { busy: this.result });
    if (ranked !== null) this.show(ranked);
    else if (question === this.question) {
      this.question = null; // it was refused, and may be asked again
      replace(this.table);
      replace(this.words);
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
    const most = Math.max(...memories.map(({ push }) => Math.abs(push ?? 0)), 1e-9);
    const pushes = memories.some(({ push }) => push !== null);
    const heads = ["Memory", pushes && "Push", "Of its layer", "Of all", "Change", "Promotes"].filter(Boolean);
    replace(this.words, rankingWords(ranked), note && h("span", ` ${note}`));
    replace(this.table, headRow(heads, ["Of its layer", "Of all"]),
      h("tbody", rows.map((row) => this.row(row, { pushes, most }))));
    this.more.hidden = rows.length === memories.length;
    this.more.textContent = `Show ${memories.length}`;
  }

  row({ memory, coefficient, share_of_layer: ofLayer, share_of_all: ofAll, push, promotes }, { pushes, most }) {
    return h("tr", h("th", { scope: "row" }, weightedMemory(memory, coefficient)), pushes && h("td", pushBar(push, most)),
      h("td.number", share(ofLayer)), h("td.number", share(ofAll)),
      h("td.change-buttons", changeButtons(this.page, memory)), h("td", promoted(promotes, coefficient)));
  }
}

function rankingWords({ by, target, tokens, position }) {
  const after = [" after ", token(tokens[position]), ". "];
  const shares = "The shares are of the sum of |coefficient| × ‖value‖, of its layer and of all layers.";
  if (by === "size") return ["Ranked by |coefficient| × ‖value‖, what each writes to the residual", after, shares];
  return ["Ranked by push, what each adds directly to the logit of ", token(target.token), ", the prediction", after, shares];
}
