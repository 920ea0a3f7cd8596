// A table of tens of thousands of rows of equal height; only those in view are in the document.
import { append, h, replace } from "./dom.js";

const ROW_HEIGHT = 33; // as in pages.css
const SPARE_ROWS = 12; // above and below the view, so that Tab finds the next link

// `columns`: {name, head, title, width (rem), number (aligned right), cell(row) -> node or text, key(row) -> sort key}.
// A row is any value, such as an index. `sort` is a column's name, with a leading - for descending order.
export class VirtualTable {
  constructor({ label, columns, sort = null, onsort = () => {} }) {
    Object.assign(this, { columns, onsort, rows: [], sorted: [], drawn: new Map(), sort: this.validSort(sort, columns) });
    this.above = h("tr.gap", { "aria-hidden": "true" }, h("td", { colSpan: columns.length }));
    this.below = h("tr.gap", { "aria-hidden": "true" }, h("td", { colSpan: columns.length }));
    this.heads = new Map(columns.map((column) => [column.name, this.head(column)]));
    this.body = h("tbody");
    this.table = h("table.rows", h("colgroup", columns.map(columnWidth)), h("thead", h("tr", [...this.heads.values()])), this.body);
    this.element = h("div.scroller", { role: "region", tabindex: "0", "aria-label": label }, this.table);
    this.element.addEventListener("scroll", () => this.draw(), { passive: true });
    this.element.addEventListener("keydown", (event) => this.step(event));
    new ResizeObserver(() => this.draw()).observe(this.element);
    const width = columns.reduce((sum, column) => sum + column.width, 0);
    this.table.style.setProperty("min-width", `${width}rem`);
  }

  validSort(sort, columns) {
    const name = sort?.replace(/^-/, "");
    return columns.some((column) => column.name === name && column.key) ? sort : null;
  }

  head(column) {
    const onclick = () => this.sortBy(column);
    const button = column.key && h("button.plain", { type: "button", title: column.title, onclick }, column.head);
    return h(column.number ? "th.number" : "th", { scope: "col" }, button || column.head);
  }

  sortBy(column) {
    const descending = `-${column.name}`;
    if (this.sort === descending) this.sort = column.name;
    else if (this.sort === column.name) this.sort = descending;
    else this.sort = column.number ? descending : column.name; // numbers start with the highest
    this.arrange();
    this.onsort(this.sort);
  }

  show(rows) {
    this.rows = rows;
    this.arrange();
  }

  arrange() {
    const name = this.sort?.replace(/^-/, "");
    const direction = this.sort === name ? "ascending" : "descending";
    for (const [key, head] of this.heads) head.setAttribute("aria-sort", key === name ? direction : "none");
    const column = this.columns.find((candidate) => candidate.name === name);
    this.sorted = column ? sortedRows(this.rows, column.key, this.sort !== name) : this.rows;
    this.table.setAttribute("aria-rowcount", String(this.sorted.length + 1));
    this.drawn.clear();
    replace(this.body, this.above, this.below);
    this.element.scrollTop = 0;
    this.draw();
  }

  draw() {
    const inView = Math.ceil((this.element.clientHeight || 600) / ROW_HEIGHT);
    const first = Math.max(0, Math.floor(this.element.scrollTop / ROW_HEIGHT) - SPARE_ROWS);
    const last = Math.min(this.sorted.length, first + inView + 2 * SPARE_ROWS);
    for (const [index, row] of this.drawn) if (index < first || index >= last) this.discard(index, row);
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

  discard(index, row) {
    if (row.contains(document.activeElement)) this.element.focus({ preventScroll: true });
    row.remove();
    this.drawn.delete(index);
  }

  row(index) {
    const row = h("tr", { "aria-rowindex": String(index + 2) });
    return append(row, this.columns.map((column, place) => {
      const kind = column.number ? ".number" : "";
      return h(`${place === 0 ? "th" : "td"}${kind}`, { scope: place === 0 ? "row" : null }, column.cell(this.sorted[index]));
    }));
  }

  // Arrow keys move the focus from a row's link to that of the next row.
  step(event) {
    const row = event.target.closest("tbody tr");
    const sibling = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    if (!row || !sibling) return;
    const link = row[sibling]?.querySelector("a");
    if (!link) return;
    event.preventDefault();
    link.focus({ preventScroll: true });
    link.closest("tr").scrollIntoView({ block: "nearest" });
    this.draw(); // at once, so that the next row exists when the next key is pressed
  }
}

function columnWidth(column) {
  const element = h("col");
  element.style.setProperty("width", `${column.width}rem`);
  return element;
}

// Rows without a sort key come last in both directions.
function sortedRows(rows, key, isDescending) {
  const keyed = rows.map((row, place) => ({ row, place, by: key(row) }));
  const sign = isDescending ? -1 : 1;
  const missing = ({ by }) => by === null || by === undefined;
  keyed.sort((a, b) => {
    if (missing(a) || missing(b)) return missing(a) - missing(b) || a.place - b.place;
    return sign * (a.by < b.by ? -1 : a.by > b.by ? 1 : 0) || a.place - b.place;
  });
  return keyed.map(({ row }) => row);
}
