// The memories that a search found, in a table.
import { h, real, share, whole } from "./dom.js";
import { AGREEMENT, agreesMark, cutText, memoryName, tokenCell } from "./widgets.js";
import { prefixTokens } from "./tokens.js";

const resultNumber = (sort, head, title, say) => ({ sort, head, title, number: true, cell: (row) => say(row[sort]) });
const RESULT_COLUMNS = [
  { head: "Memory", sort: "memory", cell: (row) => memoryName(row.memory) },
  resultNumber("hits", "Hits", "Triggers whose text contains what you asked for", whole),
  { head: "Token", title: "The promoted token that matches", promoted: true, cell: (row) => tokenCell(row.promoted?.token) },
  {
    head: "Rank", sort: "rank", title: "Rank of the token in the value, 1 is the top", promoted: true, number: true,
    cell: (row) => whole(row.promoted?.rank),
  },
  {
    head: "Probability", sort: "probability", title: "Probability of the token in the value", promoted: true, number: true,
    cell: (row) => real(row.promoted?.probability),
  },
  {
    head: "Logit", title: "The token’s logit in the value, above the mean of all tokens", logit: true, number: true,
    cell: (row) => real(row.logit),
  },
  { head: "Trigger", trigger: true },
  { head: "Top token", title: "The token that the value ranks highest", cell: (row) => tokenCell(row.top) },
  resultNumber("fires", "Fires", "Share of the prefixes seen with a coefficient above 0", share),
  resultNumber("maximum", "Maximum", "Highest coefficient", real),
  resultNumber("max_prob", "Highest prob.", "The value’s highest probability", real),
  { head: "Agreement", title: AGREEMENT, cell: (row) => agreesMark(row.agrees) },
  resultNumber("next_rank", "Next rank", "Rank of the next token of the top trigger in the value", whole),
  resultNumber("precision", "Precision", "Share of triggers whose next token is the value’s top token", (part) => share(part, 0)),
  resultNumber("patterns", "Patterns", "Number of patterns", whole),
  { head: "First pattern", cell: patternCell },
];
const RISING = ["rank", "next_rank", "memory"]; // the server begins with the lowest of these, and the highest of others

function patternCell(row) {
  if (row.pattern === null || row.pattern === undefined) return h("span.quiet", "–");
  return [row.kind ? h("span.quiet", `${row.kind}: `) : null, h("bdi", cutText(row.pattern, 90))];
}

export function resultsTable(view, rows) {
  view.columns = RESULT_COLUMNS.filter((column) => {
    if (column.sort === "hits") return Boolean(view.asked.trigger);
    if (column.promoted) return rows.some((row) => row.promoted);
    if (column.logit) return view.ranksAll;
    return !column.trigger || rows.some((row) => row.trigger);
  });
  const head = h("tr", view.columns.map((column) => resultHead(view, column)));
  const table = h("table.plain.results", h("thead", head), view.body);
  return h("div.wide", { role: "region", tabindex: "0", "aria-label": "Results" }, table);
}

function resultHead(view, column) {
  const kind = column.number ? "th.number" : "th";
  if (!column.sort || view.ranksAll) return h(kind, { scope: "col", title: column.title }, column.head);
  const now = view.asked.sort.replace(/^-/, "") === column.sort;
  const turned = now && view.asked.sort.startsWith("-");
  const way = RISING.includes(column.sort) === turned ? "descending" : "ascending";
  const onclick = () => view.sort(now && !turned ? `-${column.sort}` : column.sort);
  const button = h("button.plain", { type: "button", title: column.title, onclick }, column.head);
  return h(kind, { scope: "col", "aria-sort": now ? way : "none" }, button);
}

export function resultRow(view, row) {
  return h("tr", view.columns.map((column, place) => {
    if (place === 0) return h("th", { scope: "row" }, column.cell(row));
    if (!column.trigger) return h(column.number ? "td.number" : "td", column.cell(row));
    const options = { before: 10, after: 4, maximum: row.maximum, find: view.asked.trigger };
    return h("td.prefixes", row.trigger ? prefixTokens(row.trigger, options) : h("span.quiet", "–"));
  }));
}
