// What several pages say in the same words: names with their links, marks, empty states.
import { aboutStudy } from "./about.js";
import { h, visibleText, visibleToken } from "./dom.js";
import { layerLink, memoryLink } from "./links.js";

// A memory's name, with a link where it has a page.
export function memoryName(name, ...classes) {
  const href = memoryLink(name);
  return href ? h(["a", "name", ...classes].join("."), { href }, name) : h(["span", "name", ...classes].join("."), name);
}

export function layerName(layer) {
  return h("a.name", { href: layerLink(layer) }, `L${layer}`);
}

// yes, no, or nothing known: a word for every mark, as colour alone tells some people nothing.
export function agreesMark(agrees) {
  if (agrees === null || agrees === undefined) return h("span.quiet", "–");
  return h(agrees ? "span.agrees" : "span.quiet", agrees ? "yes" : "no");
}

// `value` knows the rank; what follows the top trigger has none where the text ends or the token is not in the vocabulary.
export function nextRankWords({ next_rank: rank, vocabulary }) {
  const said = rank === null ? "has no rank" : `ranks ${rankWord(rank)} of ${vocabulary.toLocaleString("en-US")}`;
  return `the next token of its top trigger ${said} in the value`;
}

export function rankWord(number) {
  const ends = { one: "st", two: "nd", few: "rd", other: "th" };
  return `${number.toLocaleString("en-US")}${ends[new Intl.PluralRules("en", { type: "ordinal" }).select(number)]}`;
}

export function countOf(number, one, many = `${one}s`) {
  return `${number.toLocaleString("en-US")} ${number === 1 ? one : many}`;
}

// Text in one line of a table, whole in its title; very long text is cut in both.
export function oneLine(text, longest = 160) {
  if (text === null || text === undefined) return h("span.quiet", "–");
  const said = cutText(text, 600);
  return h("bdi.line", { title: said.length > 30 ? said : null }, cutText(text, longest));
}

export function cutText(text, longest) {
  const letters = Array.from(String(text).slice(0, 2 * longest + 2));
  return letters.length <= longest ? visibleText(letters.join("")) : `${visibleText(letters.slice(0, longest - 1).join(""))}…`;
}

export function tokenCell(text) {
  if (text === null || text === undefined) return h("span.quiet", "–");
  return h("bdi.token.line", { title: visibleToken(text) }, visibleToken(text));
}

// A table with its head, in a place of its own that scrolls where it is wider than the page. `numbers` are the columns, from 0,
// that are aligned right.
export function plainTable(label, heads, body, { numbers = [], kind = "", low = false } = {}) {
  const head = h("tr", heads.map((said, place) => h(numbers.includes(place) ? "th.number" : "th", { scope: "col" }, said)));
  const table = h(`table.plain${kind}`, h("thead", head), body);
  return h(low ? "div.wide.low" : "div.wide", { role: "region", tabindex: "0", "aria-label": label }, table);
}

// An element whose length says a share.
export function meter(part, ...classes) {
  const made = h(["span", "meter", ...classes].join("."));
  made.style.setProperty("--size", Number.isFinite(part) ? Math.max(0, Math.min(1, part)).toFixed(3) : "0");
  return made;
}

// What is missing, of all stages or of some, and what to run, or why it cannot be had; null where nothing is.
export function missingStages(missing, stages = null) {
  const wanted = (missing ?? []).filter(({ stage }) => stages === null || stages.includes(stage));
  const said = wanted.map(({ stage, command, why }) => {
    if (why) return h("p", `Without ${stage}: `, h("bdi", cutText(why, 600)));
    return h("p", visibleText(aboutStudy().missing[stage]), " Run ", h("code", visibleText(command)), ".");
  });
  return said.length ? h("div.empty", said) : null;
}

// The server refuses a link with a parameter that the page does not take, so no page may keep any other there.
function refuseOther(name) {
  const taken = aboutStudy().parameters ?? {}; // an export refuses nothing, and names none
  if (Object.keys(taken).length && !Object.hasOwn(taken, name)) throw new Error(`This page takes no parameter ${name}.`);
}

// The address keeps what is chosen, so that a link shows the same again.
export function updateUrl(choices, { push = false } = {}) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(choices)) {
    refuseOther(name);
    if (value === null || value === undefined || value === "") query.delete(name);
    else query.set(name, String(value));
  }
  const said = query.toString();
  const address = `${location.pathname}${said ? `?${said}` : ""}${location.hash}`;
  try {
    history[push ? "pushState" : "replaceState"](null, "", address);
  } catch {
    // an exported page opened as a file may not change its address in every browser
  }
}

export function urlParameter(name) {
  refuseOther(name);
  return new URLSearchParams(location.search).get(name) ?? "";
}

// What the live parts say where there is no model to ask: why, and what to do.
export function needsModel(about) {
  return visibleText(`Needs the model. ${about.why ?? "Run ffscope serve without --no-model."}`);
}
