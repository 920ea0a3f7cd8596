// Elements shared by several pages: links, marks, tables, messages.
import { aboutStudy } from "./about.js";
import { h, replace, visibleText, visibleToken } from "./dom.js";
import { layerLink, memoryLink } from "./links.js";

// A memory's name, with a link if it has a page.
export function memoryName(name, ...classes) {
  const href = memoryLink(name);
  return href ? h(["a", "name", ...classes].join("."), { href }, name) : h(["span", "name", ...classes].join("."), name);
}

export function layerName(layer) {
  return h("a.name", { href: layerLink(layer) }, `L${layer}`);
}

// yes, no, or – if unknown; as text, since colour alone is not accessible.
export function agreesMark(agrees) {
  if (agrees === null || agrees === undefined) return h("span.quiet", "–");
  return h(agrees ? "span.agrees" : "span.quiet", agrees ? "yes" : "no");
}

// There is no rank if the text ends after the top trigger, or the next token is not in the vocabulary.
export function nextRankWords({ next_rank: rank, vocabulary }) {
  const words = rank === null ? "has no rank" : `ranks ${rankWord(rank)} of ${vocabulary.toLocaleString("en-US")}`;
  return `the next token of its top trigger ${words} in the value`;
}

export function rankWord(number) {
  const ends = { one: "st", two: "nd", few: "rd", other: "th" };
  return `${number.toLocaleString("en-US")}${ends[new Intl.PluralRules("en", { type: "ordinal" }).select(number)]}`;
}

export function countOf(number, singular, plural = `${singular}s`) {
  return `${number.toLocaleString("en-US")} ${number === 1 ? singular : plural}`;
}

// Text on one line of a table, with the full text as tooltip; very long text is cut in both.
export function oneLine(text, longest = 160) {
  if (text === null || text === undefined) return h("span.quiet", "–");
  const full = cutText(text, 600);
  return h("bdi.line", { title: full.length > 30 ? full : null }, cutText(text, longest));
}

export function cutText(text, longest) {
  const characters = Array.from(String(text).slice(0, 2 * longest + 2));
  return characters.length <= longest
    ? visibleText(characters.join("")) : `${visibleText(characters.slice(0, longest - 1).join(""))}…`;
}

export function tokenCell(text) {
  if (text === null || text === undefined) return h("span.quiet", "–");
  return h("bdi.token.line", { title: visibleToken(text) }, visibleToken(text));
}

// A table in a region that scrolls if it is wider than the page. `numbers`: the indices of right-aligned columns.
export function plainTable(label, heads, body, { numbers = [], kind = "", low = false } = {}) {
  const head = h("tr", heads.map((label, place) => h(numbers.includes(place) ? "th.number" : "th", { scope: "col" }, label)));
  const table = h(`table.plain${kind}`, h("thead", head), body);
  return h(low ? "div.wide.low" : "div.wide", { role: "region", tabindex: "0", "aria-label": label }, table);
}

// A bar whose length is a share.
export function meter(part, ...classes) {
  const bar = h(["span", "meter", ...classes].join("."));
  bar.style.setProperty("--size", Number.isFinite(part) ? Math.max(0, Math.min(1, part)).toFixed(3) : "0");
  return bar;
}

// A message on missing stages (all, or only `stages`): the command to run, or why a stage cannot be run; null if none is missing.
export function missingStages(missing, stages = null) {
  const entries = (missing ?? []).filter(({ stage }) => stages === null || stages.includes(stage));
  const sentences = entries.map(({ stage, command, why }) => {
    if (why) return h("p", `Without ${stage}: `, h("bdi", cutText(why, 600)));
    return h("p", visibleText(aboutStudy().missing[stage]), " Run ", h("code", visibleText(command)), ".");
  });
  return sentences.length ? h("div.empty", sentences) : null;
}

// The server refuses URLs with unknown parameters, so no page may add one.
function checkParameter(name) {
  const parameters = aboutStudy().parameters ?? {}; // an export lists none and accepts all
  if (Object.keys(parameters).length && !Object.hasOwn(parameters, name)) throw new Error(`This page takes no parameter ${name}.`);
}

// Stores the page's state in its URL.
export function updateUrl(choices, { push = false } = {}) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(choices)) {
    checkParameter(name);
    if (value === null || value === undefined || value === "") query.delete(name);
    else query.set(name, String(value));
  }
  const text = query.toString();
  const address = `${location.pathname}${text ? `?${text}` : ""}${location.hash}`;
  try {
    history[push ? "pushState" : "replaceState"](null, "", address);
  } catch {
    // some browsers do not allow this for a page opened as a file
  }
}

export function urlParameter(name) {
  checkParameter(name);
  return new URLSearchParams(location.search).get(name) ?? "";
}

// The message of live parts without a model: why, and what to do.
export function needsModel(about, what = "This") {
  return visibleText(`${what} needs the model. ${about.why ?? "Run ffscope serve without --no-model."}`);
}

// A button that copies a text, and whether it did.
export function copyButton(text) {
  const button = h("button", { type: "button" }, "Copy");
  const status = h("span.quiet", { role: "status" });
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      replace(status, "Copied.");
    } catch {
      replace(status, "The browser does not allow copying. Select the command and copy it by hand.");
    }
  });
  return [button, status];
}
