// A tooltip with the ten most likely tokens of a cell of the grid.
import { h, replace, share, token, whole } from "./dom.js";

const GAP = 6;

export class GridTip {
  constructor() {
    this.element = h("div.grid-tip", { id: "grid-tip", role: "tooltip", hidden: true });
  }

  hide() {
    this.element.hidden = true;
    this.cell?.removeAttribute("aria-describedby");
    this.cell = null;
  }

  // When the grid scrolls, the tip of a focused cell moves along; a tip under the pointer is hidden, as the cell has changed.
  follow() {
    if (this.cell !== document.activeElement) this.hide();
    else this.placeBeside(this.cell);
  }

  show(cell, reading, { row, column }) {
    if (this.cell === cell) return;
    this.hide();
    this.cell = cell;
    cell.setAttribute("aria-describedby", "grid-tip");
    replace(this.element, tipHead(reading, { row, column }), tipRows(reading, { row, column }));
    this.element.hidden = false;
    this.placeBeside(cell);
  }

  placeBeside(cell) {
    this.place(cell.getBoundingClientRect(), cell.closest(".grid-scroll").getBoundingClientRect());
  }

  // Beside the grid where there is room, so that it covers no cell; else below or above the cell. Never outside the window.
  place(box, grid) {
    const { offsetWidth, offsetHeight } = this.element;
    const beside = grid.right + GAP + offsetWidth < innerWidth;
    const below = box.bottom + GAP;
    const near = below + offsetHeight <= innerHeight ? below : box.top - GAP - offsetHeight;
    const top = Math.max(GAP, beside ? Math.min(box.top, innerHeight - offsetHeight - GAP) : near);
    const left = beside ? grid.right + GAP : Math.max(GAP, Math.min(box.left, innerWidth - offsetWidth - GAP));
    this.element.style.setProperty("top", `${top}px`);
    this.element.style.setProperty("left", `${left}px`);
  }
}

function tipHead({ grid, tokens }, { row, column }) {
  const entropy = grid.entropy[row][column];
  return h("p", h("strong", `L${grid.layers[row]}`), " after ", token(tokens[column]), h("br"),
    h("span.soft", `rank of the final prediction ${whole(grid.rank[row][column])}, entropy ${entropy?.toFixed(1) ?? "–"} bits`));
}

function tipRows({ grid, spellings }, { row, column }) {
  const probabilities = grid.probability[row][column];
  const line = (id, i) => h("tr", h("td", token(spellings[id] ?? `#${id}`)), h("td.number", share(probabilities[i])));
  return h("table", grid.top[row][column].map(line));
}
