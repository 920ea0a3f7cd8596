// The ten most likely tokens of one cell of the grid, beside it.
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

  // The grid scrolls to a cell that gets the focus, which keeps its tip; under a pointer there is another cell by then.
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

  // Beside the grid where there is room, so that it hides no cell; else below the cell or above it. Never outside the window.
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
    h("span.soft", `final prediction ranks ${whole(grid.rank[row][column])}, entropy ${entropy?.toFixed(1) ?? "–"} bits`));
}

function tipRows({ grid, spellings }, { row, column }) {
  const chances = grid.probability[row][column];
  const line = (id, i) => h("tr", h("td", token(spellings[id] ?? `#${id}`)), h("td.number", share(chances[i])));
  return h("table", grid.top[row][column].map(line));
}
