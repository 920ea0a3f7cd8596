// One prefix of a memory: rank, coefficient, tokens, next token, and the paragraph around it.
import { getJson } from "./requests.js";
import { h, replace, token, whole } from "./dom.js";
import { isExport } from "./links.js";
import { cutText, meter } from "./widgets.js";
import { prefixTokens } from "./tokens.js";

export const ranksOf = (row) => [row.rank, ...(row.folded ?? [])];

// {row, element, colour(coefficients, maximum)}; `highest` is the size of the list's largest coefficient.
export function exampleRow(row, { highest, byQuantile = false }) {
  const place = h("div");
  const context = isExport() ? {} : contextOf(row);
  const coefficient = row.coefficient ?? 0;
  const number = row.coefficient === null ? "–" : coefficient.toFixed(decimalsFor(highest)); // null: not a number
  const facts = [
    row.title ? h("bdi", cutText(row.title, 90)) : null,
    byQuantile && Number.isFinite(row.quantile) ? h("span", `quantile ${row.quantile.toFixed(2)}`) : null,
    row.folded?.length ? foldedMark(row.folded) : null,
  ].filter(Boolean);
  const agrees = row.agrees ? h("span.agrees", { title: "The next token is the value’s top token" }, "agrees") : null;
  const element = h("article.example",
    h("div.coefficient", h("span.quiet.rank", whole(row.rank)), h("span.number", number),
      meter(Math.abs(coefficient) / highest, coefficient < 0 ? "cold" : "hot")),
    h("div.read", place, facts.length ? h("div.meta", facts) : null, context.place),
    h("div.following", h("span.quiet.small", "next "), row.next_token ? token(row.next_token) : h("span.quiet", "–"),
      h("div.small", agrees, context.button)));
  const colour = (coefficients, maximum) => {
    const scale = maximum > 0 ? maximum : highest; // a memory that never fires has only negative coefficients
    replace(place, prefixTokens(row, { coefficients: coefficients ?? null, maximum: scale }));
  };
  return { row, element, colour };
}

function foldedMark(ranks) {
  return h("span", { title: `The same prefix also has rank ${ranks.slice(0, 50).join(", ")}` }, `×${ranks.length + 1}`);
}

// Enough decimals to distinguish coefficients of this size; the same for all rows.
function decimalsFor(highest) {
  return Math.max(0, Math.min(6, 2 - Math.floor(Math.log10(highest))));
}

function contextOf(row) {
  const place = h("div.paragraph", { hidden: true });
  const button = h("button.plain", { type: "button", "aria-expanded": "false" }, "Paragraph");
  button.addEventListener("click", async () => {
    place.hidden = !place.hidden;
    button.setAttribute("aria-expanded", String(!place.hidden));
    if (place.hidden || place.children.length) return;
    replace(place, h("p.quiet", { role: "status" }, "Loading …"));
    try {
      replace(place, paragraphOf(await getJson("/context.json", { sentence: row.sentence }), row.sentence));
    } catch (error) {
      replace(place, h("p.quiet", { role: "alert" }, h("bdi", cutText(error.message, 300))));
    }
  });
  return { button, place };
}

function paragraphOf({ title, sentences }, sentence) {
  const texts = sentences.map((row) => [h(row.sentence === sentence ? "mark" : "span", cutText(row.text, 4000)), " "]);
  return [title ? h("p.small", h("strong", h("bdi", cutText(title, 200)))) : null, h("p", { dir: "auto" }, texts)];
}
