// The results of a search, as a table.
import { h, real, whole } from "./dom.js";
import { allMeasures, columnMeanings, isRange, measureCell, measureHead, measuresIn } from "./measures.js";
import { cutText, memoryName, tokenCell } from "./widgets.js";
import { prefixTokens } from "./tokens.js";

// The columns specific to a search; those of the measures follow.
const MATCH_COLUMNS = [
  { head: "Memory", sort: "memory", cell: (row) => memoryName(row.memory) },
  {
    head: "Hits", sort: "hits", title: "Number of triggers that contain the searched text", number: true,
    cell: (row) => whole(row.hits),
  },
  { head: "Token", title: "The promoted token that matches", promoted: true, cell: (row) => tokenCell(row.promoted?.token) },
  {
    head: "Rank", sort: "rank", title: "Rank of the token in the value; 1 is the top token", promoted: true, number: true,
    cell: (row) => whole(row.promoted?.rank),
  },
  {
    head: "Probability", sort: "probability", title: "Probability of the token in the value", promoted: true, number: true,
    cell: (row) => real(row.promoted?.probability),
  },
  {
    head: "Logit", title: "Logit of the token in the value minus the mean over all tokens", logit: true, number: true,
    cell: (row) => real(row.logit),
  },
  { head: "Trigger", trigger: true },
];
const ASCENDING_MATCHES = ["rank", "memory"]; // the server sorts these in ascending order

// Tokens come first, beside the trigger.
function measureColumns() {
  const measures = measuresIn("search");
  const isToken = ({ kind }) => kind === "token";
  return [...measures.filter(isToken), ...measures.filter((measure) => !isToken(measure))].map(measureColumn);
}

function measureColumn(measure) {
  const { name, help: title, rising } = measure;
  const cell = measure.kind === "text" ? describedCell(measure) : (row) => measureCell(measure, row[name]);
  return { head: measureHead(measure), title, cell, rising, number: isRange(measure), sort: isRange(measure) ? name : null };
}

// A choice of the same stage without a column of its own is shown before the text.
function describedCell({ name, stage }) {
  const before = allMeasures().find((other) => other.stage === stage && other.kind === "choice" && !other.shown.includes("search"));
  return (row) => {
    if (row[name] === null || row[name] === undefined) return h("span.quiet", "–");
    const kind = before && row[before.name] ? h("span.quiet", `${row[before.name]}: `) : null;
    return h("span.described", kind, h("bdi", cutText(row[name], 90)));
  };
}

export function resultsTable(view, rows) {
  view.columns = [...MATCH_COLUMNS, ...measureColumns()].filter((column) => {
    if (column.sort === "hits") return Boolean(view.query.trigger);
    if (column.promoted) return rows.some((row) => row.promoted);
    if (column.logit) return view.ranksAll;
    return !column.trigger || rows.some((row) => row.trigger);
  });
  const head = h("tr", view.columns.map((column) => resultHead(view, column)));
  const table = h("table.plain.results", h("thead", head), view.body);
  return [h("div.wide", { role: "region", tabindex: "0", "aria-label": "Results" }, table), columnMeanings(measuresIn("search"))];
}

function resultHead(view, column) {
  const kind = column.number ? "th.number" : "th";
  if (!column.sort || view.ranksAll) return h(kind, { scope: "col", title: column.title }, column.head);
  const isSorted = view.query.sort.replace(/^-/, "") === column.sort;
  const isReversed = isSorted && view.query.sort.startsWith("-");
  const isAscending = column.rising || ASCENDING_MATCHES.includes(column.sort);
  const direction = isAscending === isReversed ? "descending" : "ascending";
  const onclick = () => view.sort(isSorted && !isReversed ? `-${column.sort}` : column.sort);
  const button = h("button.plain", { type: "button", title: column.title, onclick }, column.head);
  return h(kind, { scope: "col", "aria-sort": isSorted ? direction : "none" }, button);
}

export function resultRow(view, row) {
  return h("tr", view.columns.map((column, place) => {
    if (place === 0) return h("th", { scope: "row" }, column.cell(row));
    if (!column.trigger) return h(column.number ? "td.number" : "td", column.cell(row));
    const options = { before: 10, after: 4, maximum: row.maximum, find: view.query.trigger };
    return h("td.prefixes", row.trigger ? prefixTokens(row.trigger, options) : h("span.quiet", "–"));
  }));
}
