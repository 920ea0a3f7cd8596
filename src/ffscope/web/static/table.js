// A table of tens of thousands of rows: only those in sight are in the page, all of one height.
import { append, h, replace } from "./dom.js";

const ROW_HEIGHT = 33; // as in pages.css
const SPARE_ROWS = 12; // kept above and below what is in sight, so that Tab finds its next link

// `columns`: {name, head, title, width (rem), number (aligned right), cell(row) -> node or text, key(row) -> what it sorts by}.
// Rows are whatever the caller has, such as indices. `sort` is a column's name, with a leading - for the other way round.
export class VirtualTable {
  constructor({ label, columns, sort = null, onsort = () => {} }) {
    Object.assign(this, { columns, onsort, rows: [], sorted: [], drawn: new Map(), sort: this.knownSort(sort, columns) });
    this.above = h("tr.gap", { "aria-hidden": "true" }, h("td", { colSpan: columns.length }));
    this.below = h("tr.gap", { "aria-hidden": "true" }, h("td", { colSpan: columns.length }));
    this.heads = new Map(columns.map((column) => [column.name, this.head(column)]));
    this.body = h("tbody");
    this.table = h("table.rows", h("colgroup", columns.map(columnWidth)), h("thead", h("tr", [...this.heads.values()])), this.body);
    this.element = h("div.scroller", { role: "region", tabindex: "0", "aria-label": label }, this.table);
    this.element.addEventListener("scroll", () => this.draw(), { passive: true });
    this.element.addEventListener("keydown", (event) => this.step(event));
    new ResizeObserver(() => this.draw()).observe(this.element);
    const wide = columns.reduce((sum, column) => sum + column.width, 0);
    this.table.style.setProperty("min-width", `${wide}rem`);
  }

  knownSort(sort, columns) {
    const name = sort?.replace(/^-/, "");
    return columns.some((column) => column.name === name && column.key) ? sort : null;
  }

  head(column) {
    const onclick = () => this.turn(column);
    const button = column.key && h("button.plain", { type: "button", title: column.title, onclick }, column.head);
    return h(column.number ? "th.number" : "th", { scope: "col" }, button || column.head);
  }

  turn(column) {
    const down = `-${column.name}`;
    if (this.sort === down) this.sort = column.name;
    else if (this.sort === column.name) this.sort = down;
    else this.sort = column.number ? down : column.name; // of numbers, the highest are asked for first
    this.arrange();
    this.onsort(this.sort);
  }

  show(rows) {
    this.rows = rows;
    this.arrange();
  }

  arrange() {
    const name = this.sort?.replace(/^-/, "");
    const way = this.sort === name ? "ascending" : "descending";
    for (const [one, head] of this.heads) head.setAttribute("aria-sort", one === name ? way : "none");
    const column = this.columns.find((one) => one.name === name);
    this.sorted = column ? sortedRows(this.rows, column.key, this.sort !== name) : this.rows;
    this.table.setAttribute("aria-rowcount", String(this.sorted.length + 1));
    this.drawn.clear();
    replace(this.body, this.above, this.below);
    this.element.scrollTop = 0;
    this.draw();
  }

  draw() {
    const inSight = Math.ceil((this.element.clientHeight || 600) / ROW_HEIGHT);
    const first = Math.max(0, Math.floor(this.element.scrollTop / ROW_HEIGHT) - SPARE_ROWS);
    const last = Math.min(this.sorted.length, first + inSight + 2 * SPARE_ROWS);
    for (const [index, row] of this.drawn) if (index < first || index >= last) this.forget(index, row);
    let before = this.above;
    for (let index = first; index < last; index++) {
      let row = this.drawn.get(index);
      if (!row) {
        row = this.row(index);
        this.drawn.set(index, row);
        before.after(row);
      }
      before = row;
    }
    this.above.style.setProperty("height", `${first * ROW_HEIGHT}px`);
    this.below.style.setProperty("height", `${(this.sorted.length - last) * ROW_HEIGHT}px`);
  }

  forget(index, row) {
    if (row.contains(document.activeElement)) this.element.focus({ preventScroll: true });
    row.remove();
    this.drawn.delete(index);
  }

  row(index) {
    const made = h("tr", { "aria-rowindex": String(index + 2) });
    return append(made, this.columns.map((column, place) => {
      const kind = column.number ? ".number" : "";
      return h(`${place === 0 ? "th" : "td"}${kind}`, { scope: place === 0 ? "row" : null }, column.cell(this.sorted[index]));
    }));
  }

  // Arrow keys go from a row's link to the next row's.
  step(event) {
    const row = event.target.closest("tbody tr");
    const way = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    if (!row || !way) return;
    const link = row[way]?.querySelector("a");
    if (!link) return;
    event.preventDefault();
    link.focus({ preventScroll: true });
    link.closest("tr").scrollIntoView({ block: "nearest" });
    this.draw(); // now, so that the next key finds its row however fast it comes
  }
}

function columnWidth(column) {
  const made = h("col");
  made.style.setProperty("width", `${column.width}rem`);
  return made;
}

// What has nothing to sort by comes last either way.
function sortedRows(rows, key, down) {
  const keyed = rows.map((row, place) => ({ row, place, by: key(row) }));
  const sign = down ? -1 : 1;
  const missing = (one) => one.by === null || one.by === undefined;
  keyed.sort((a, b) => {
    if (missing(a) || missing(b)) return missing(a) - missing(b) || a.place - b.place;
    return sign * (a.by < b.by ? -1 : a.by > b.by ? 1 : 0) || a.place - b.place;
  });
  return keyed.map((one) => one.row);
}
