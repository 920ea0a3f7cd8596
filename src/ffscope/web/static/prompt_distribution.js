// The model's final prediction at the selected position, without and with the interventions.
import { h, replace, visibleToken, share, token, whole } from "./dom.js";
import { headRow, tinyButton } from "./prompt_parts.js";

const SHOWN_ROWS = 12;
const PLAIN_HEADS = ["Token", "Probability", "Rank", "Compare"];
const CHANGED_HEADS = ["Token", "Without", "Rank", "With", "Rank", "Change", "Compare"];

export class PromptDistribution {
  constructor(page) {
    this.page = page;
    this.all = false;
    this.summary = h("p.soft");
    this.table = h("table.prompt-table.distribution");
    this.more = h("button", { type: "button", onclick: () => this.showAll() });
    this.element = h("section", h("h2", "Final prediction"), this.summary, h("div.own-scroll", this.table), this.more);
  }

  show(reading) {
    this.reading = reading;
    const { position, tokens, distribution } = reading;
    const changed = distribution.some((row) => row.after !== null);
    replace(this.summary, "After ", token(tokens[position]), changed ? ", without and with the interventions. " : ". ",
      "Press A and B to choose two tokens to compare below.");
    const highest = Math.max(...distribution.flatMap((row) => [row.before ?? 0, row.after ?? 0]), 1e-9);
    const rows = this.all ? distribution : distribution.slice(0, SHOWN_ROWS);
    replace(this.table, headRow(changed ? CHANGED_HEADS : PLAIN_HEADS, ["Rank", "Change"], { Change: "change-cell" }),
      h("tbody", rows.map((row) => this.row(row, { changed, highest }))));
    this.more.hidden = rows.length === distribution.length;
    this.more.textContent = `Show all ${distribution.length}`;
  }

  showAll() {
    this.all = true;
    this.show(this.reading);
  }

  row(row, { changed, highest }) {
    const cells = [probabilityCell(row.before, highest), h("td.number", whole(row.before_rank))];
    if (changed) cells.push(probabilityCell(row.after, highest), h("td.number", whole(row.after_rank)), rankChange(row));
    const pick = (which) => {
      const letter = which.toUpperCase();
      return tinyButton(letter, `Compare ${visibleToken(row.token)} as ${letter}`, () => this.page.why.choose(which, row));
    };
    return h("tr", h("th", { scope: "row" }, token(row.token)), cells, h("td.change-buttons", pick("a"), pick("b")));
  }
}

function probabilityCell(probability, highest) {
  const bar = h("span.measure-bar", { style: { "--part": (probability ?? 0) / highest } });
  return h("td", h("span.measure", bar, h("span.measure-number", share(probability))));
}

function rankChange({ before_rank: before, after_rank: after }) {
  if (before === null || after === null || before === after) return h("td.number.soft.change-cell", "–");
  if (after < before) return h("td.number.rises.change-cell", `▲ ${whole(before - after)}`);
  return h("td.number.falls.change-cell", `▼ ${whole(after - before)}`);
}
