// Layers × tokens: what each layer predicts after each token. The first layer is at the bottom, as in the literature.
import { h, replace, visibleToken } from "./dom.js";
import { GridTip } from "./prompt_tip.js";
import { term } from "./terms.js";

const READ_FROM = { output: "output (after the FF layer)", residual: "residual (before it)" };
const COLOURS = { probability: "probability", rank: "rank", entropy: "entropy" };
const RANK_DECADES = 4; // the colour fades out at rank 10,000

// The intensity of a cell's colour, from 0 to 1: in all three, deeper means closer to certainty or to the final prediction.
const HEATS = {
  probability: (grid) => (row, column) => grid.probability[row][column][0],
  rank: (grid) => (row, column) => 1 - Math.log10(grid.rank[row][column]) / RANK_DECADES,
  entropy: (grid) => {
    const highest = maxEntropy(grid);
    return (row, column) => 1 - grid.entropy[row][column] / highest;
  },
};

const LEGENDS = {
  probability: () => ["Probability of the top token:", ["0 %", "25 %", "50 %", "75 %", "100 %"]],
  rank: () => ["Rank of the model's final prediction:", ["10,000 or more", "1,000", "100", "10", "1"]],
  entropy: (grid) => ["Entropy in bits:", [4, 3, 2, 1, 0].map((part) => ((maxEntropy(grid) * part) / 4).toFixed(1))],
};

function maxEntropy(grid) {
  return grid.entropy.flat().reduce((highest, entropy) => Math.max(highest, entropy ?? 0), 1e-9);
}

function choiceOf(label, choices, onchoice) {
  const options = Object.entries(choices).map(([value, text]) => h("option", { value }, text));
  const box = h("select", { onchange: () => onchoice(box.value) }, options);
  return { box, element: h("label.prompt-choice", `${label} `, box) };
}

export class PromptGrid {
  constructor(page) {
    this.page = page;
    this.question = null;
    this.tip = new GridTip();
    this.studyLens = page.about.lens ?? page.about.lenses[0]; // unset before the stage values
    const lenses = Object.fromEntries([this.studyLens, ...page.about.lenses].map((name) => [name, name]));
    this.of = choiceOf("Read from", READ_FROM, (of) => page.change({ of: of === "output" ? "" : of }));
    this.lens = choiceOf("Lens", lenses, (lens) => page.change({ lens: lens === this.studyLens ? "" : lens }));
    this.colour = choiceOf("Colour by", COLOURS, (colour) => {
      page.keep({ colour: colour === "probability" ? "" : colour });
      this.paint();
    });
    this.legend = h("p.grid-legend");
    this.table = h("table.prompt-grid", { role: "grid", "aria-label": "The top token of every layer after every token" });
    this.scroller = h("div.grid-scroll", this.table);
    this.listen();
    this.element = h("section", h("h2", "Prediction of every layer after every token"),
      h("p.soft", "Each cell shows the most likely next token after a layer, read from the ", term("output"), " or the ",
        term("residual"), " through a ", term("lens"), "; bold where it is the model’s final prediction. ",
        "The first layer is at the bottom. Select a cell to examine its position below."),
      h("div.prompt-choices", this.of.element, this.colour.element, this.lens.element),
      this.legend, this.scroller, this.tip.element);
  }

  show(reading, question) {
    const { link } = this.page;
    this.of.box.value = reading.of;
    this.lens.box.value = link.lens || this.studyLens;
    this.colour.box.value = Object.hasOwn(COLOURS, link.colour) ? link.colour : "probability";
    const isNew = this.question !== question;
    this.reading = reading;
    this.question = question;
    if (isNew) this.build();
    this.choose(reading.position);
  }

  build() {
    const { grid, tokens } = this.reading;
    const focused = this.table.contains(document.activeElement) ? this.whereIs(document.activeElement) : null;
    this.tip.hide();
    const heads = tokens.map((text, position) => h("th", { scope: "col", title: `Position ${position}` }, visibleToken(text)));
    this.cells = [];
    const rows = grid.layers.map((layer, row) => this.rowOf(layer, row)).reverse();
    this.table.style.setProperty("--columns", tokens.length);
    replace(this.table, h("thead", h("tr", h("th", { scope: "col" }, "Layer"), heads)), h("tbody", rows));
    this.paint();
    this.roving = null;
    this.rove(this.cellAt(focused?.row ?? grid.layers.length - 1, focused?.column ?? this.reading.position));
    if (focused) this.roving?.focus({ preventScroll: true });
    else if (this.width !== tokens.length) this.showColumn(this.roving); // for the same text the scroll position is kept
    this.width = tokens.length;
  }

  showColumn(cell) {
    this.scroller.scrollLeft = cell.offsetLeft + cell.offsetWidth - this.scroller.clientWidth;
  }

  rowOf(layer, row) {
    const { grid, spellings, tokens } = this.reading;
    this.cells[row] = tokens.map((_, column) => {
      const top = grid.top[row][column][0];
      const kind = grid.rank[row][column] === 1 ? "td.final" : "td";
      return h(kind, { role: "gridcell", tabindex: "-1" }, visibleToken(spellings[top] ?? `#${top}`));
    });
    return h("tr", h("th", { scope: "row" }, `L${layer}`), this.cells[row]);
  }

  paint() {
    const { grid } = this.reading;
    const name = this.colour.box.value;
    const heat = HEATS[name](grid);
    this.cells.forEach((cells, row) => cells.forEach((cell, column) => {
      const intensity = Math.min(1, Math.max(0, heat(row, column) || 0));
      cell.style.setProperty("--heat", intensity.toFixed(2));
    }));
    const [label, steps] = LEGENDS[name](grid);
    replace(this.legend, `${label} `, steps.map((step, i) => h("span.grid-swatch", { style: { "--heat": i / 4 } }, step)));
  }

  cellAt(row, column) {
    return this.cells[row]?.[column] ?? null;
  }

  whereIs(cell) {
    return { row: this.reading.grid.layers.length - cell.parentNode.rowIndex, column: cell.cellIndex - 1 };
  }

  choose(position) {
    for (const cell of this.table.querySelectorAll(".chosen")) cell.classList.remove("chosen");
    for (const row of this.table.rows) row.cells[position + 1]?.classList.add("chosen");
  }

  rove(cell) {
    if (cell === null) return;
    this.roving?.setAttribute("tabindex", "-1");
    this.roving = cell;
    cell.setAttribute("tabindex", "0");
  }

  listen() {
    const cellOf = (event) => event.target.closest("td");
    this.table.addEventListener("mouseover", (event) => cellOf(event) && this.showTip(cellOf(event)));
    this.table.addEventListener("mouseleave", () => this.tip.hide());
    this.table.addEventListener("focusin", (event) => {
      this.rove(cellOf(event));
      this.showTip(cellOf(event));
    });
    this.table.addEventListener("focusout", () => this.tip.hide());
    this.scroller.addEventListener("scroll", () => this.tip.follow());
    this.table.addEventListener("keydown", (event) => this.press(event));
    this.table.addEventListener("click", (event) => {
      const cell = event.target.closest("td, thead th");
      if (cell && cell.cellIndex > 0) this.pick(cell.cellIndex - 1);
    });
  }

  pick(position) {
    this.choose(position);
    this.page.choosePosition(position);
  }

  showTip(cell) {
    const { row, column } = this.whereIs(cell);
    this.tip.show(cell, this.reading, { row, column });
  }

  press(event) {
    if (event.target.tagName !== "TD" || event.ctrlKey || event.altKey || event.metaKey) return;
    const { row, column } = this.whereIs(event.target);
    const [top, last] = [this.cells.length - 1, this.cells[row].length - 1];
    const to = {
      ArrowUp: [row + 1, column], ArrowDown: [row - 1, column], ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1],
      Home: [row, 0], End: [row, last], PageUp: [top, column], PageDown: [0, column],
    }[event.key];
    if (event.key === "Escape") this.tip.hide();
    if (event.key === "Enter" || event.key === " ") this.pick(column);
    else if (!to) return;
    event.preventDefault();
    if (to) this.cellAt(...to)?.focus();
  }
}
