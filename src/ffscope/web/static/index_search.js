// The search page of an export: it searches an index of all memories embedded in the page, as there is no server.
import { h, replace, visibleText, token, whole } from "./dom.js";
import { MemoryIndex } from "./memory_index.js";
import { term } from "./terms.js";
import { countOf, cutText, urlParameter, updateUrl, memoryName, missingStages, plainTable } from "./widgets.js";

const MATCHES_AT_ONCE = 50;
const EXCERPT = { before: 40, end: 140 }; // characters shown before a match, and of the end of a trigger

export function indexSearchPage(place, data, about) {
  document.title = `Search – ${visibleText(about.name)} – ffscope`;
  const index = new MemoryIndex(data.index);
  const box = h("input", { type: "search", name: "q", value: urlParameter("q"), spellcheck: "false", maxlength: "200" });
  const status = h("p.quiet.count", { role: "status" });
  const results = h("div");
  const search = () => {
    updateUrl({ q: box.value });
    showMatches({ index, text: box.value, status, results });
  };
  const onsubmit = (event) => event.preventDefault();
  replace(place, h("h1", "Search"),
    h("p.quiet", `Search the names, first patterns, top promoted tokens and top triggers of all ${whole(index.size)} `,
      term("memory", "memories"), ". Memories without a link have no page in this export."),
    missingStages(data.missing),
    h("form.filters", { role: "search", "aria-label": "Search memories", oninput: search, onsubmit },
      h("label.grow", "Name, pattern, promoted token or trigger contains", box)),
    status, results);
  search();
  box.focus();
}

function showMatches({ index, text, status, results }) {
  if (!text.trim()) {
    replace(status);
    replace(results);
    return;
  }
  const matches = index.find(text);
  const body = h("tbody");
  const more = h("p");
  const showMore = () => {
    const from = body.childElementCount;
    body.append(...matches.slice(from, from + MATCHES_AT_ONCE).map((match) => matchRow(match, text)));
    const rest = matches.length - body.childElementCount;
    const label = `Show ${whole(Math.min(rest, MATCHES_AT_ONCE))} more of ${whole(rest)}`;
    replace(more, rest > 0 && h("button", { type: "button", onclick: showMore }, label));
  };
  showMore();
  replace(status, countOf(matches.length, "memory", "memories"));
  const heads = ["Memory", "First pattern", "Promoted tokens", "Trigger"];
  replace(results, matches.length
    ? [plainTable("Results", heads, body, { kind: ".results" }), more]
    : h("div.empty", "No memory matches. Try a shorter text."));
}

function matchRow({ name, pattern, promotes, trigger }, text) {
  const query = text.trim().toLowerCase();
  const marks = (promoted) => (promoted.toLowerCase().includes(query) ? ["tok", "match"] : []);
  return h("tr", h("th", { scope: "row" }, memoryName(name)),
    h("td", pattern === null ? h("span.quiet", "–") : h("bdi", marked(cutText(pattern, 120), text.trim()))),
    h("td", promotes.map((promoted) => [token(promoted, ...marks(promoted)), " "])),
    h("td.prefixes", trigger === null ? h("span.quiet", "–") : h("bdi", triggerExcerpt(trigger, text))));
}

// The end of a trigger, extended to include the match.
function triggerExcerpt(trigger, text) {
  const query = text.replaceAll("␣", " ");
  const at = trigger.toLowerCase().indexOf(query.toLowerCase());
  const first = Math.max(0, Math.min(trigger.length - EXCERPT.end, at < 0 ? Infinity : at - EXCERPT.before));
  const start = /^[\uDC00-\uDFFF]/.test(trigger.slice(first)) ? first + 1 : first; // not within a surrogate pair
  return [start > 0 ? "…" : "", marked(visibleText(trigger.slice(start)), query)];
}

// Text with the first match underlined; unmarked if lower-casing changes its length.
function marked(text, query) {
  const lowered = text.toLowerCase();
  const at = lowered.length === text.length ? lowered.indexOf(query.toLowerCase()) : -1;
  if (at < 0) return [text];
  const end = at + query.length;
  return [text.slice(0, at), h("span.tok.match", text.slice(at, end)), text.slice(end)];
}
