// The search of an export: through an index of all memories that the page brings along, as there is no server to ask.
import { h, replace, seen, token, whole } from "./dom.js";
import { MemoryIndex } from "./memory_index.js";
import { countOf, cutText, inLocation, keepInLocation, memoryName, missingStages, plainTable } from "./widgets.js";

const MATCHES_AT_ONCE = 50;
const EXCERPT = { before: 40, end: 140 }; // characters shown before a match, and of the end of a trigger

export function indexSearchPage(place, twin, about) {
  document.title = `Search – ${seen(about.name)} – ffscope`;
  const index = new MemoryIndex(twin.index);
  const box = h("input", { type: "search", name: "q", value: inLocation("q"), spellcheck: "false", maxlength: "200" });
  const status = h("p.quiet.count", { role: "status" });
  const results = h("div");
  const search = () => {
    keepInLocation({ q: box.value });
    showMatches({ index, text: box.value, status, results });
  };
  const onsubmit = (event) => event.preventDefault();
  replace(place, h("h1", "Search"),
    h("p.quiet", `Searches the names, first patterns, top promoted tokens and top triggers of all ${whole(index.size)} memories. `,
      "Those without a link have no page in this export."),
    missingStages(twin.missing),
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
    const word = `Show ${whole(Math.min(rest, MATCHES_AT_ONCE))} more of ${whole(rest)}`;
    replace(more, rest > 0 && h("button", { type: "button", onclick: showMore }, word));
  };
  showMore();
  replace(status, countOf(matches.length, "memory", "memories"));
  const heads = ["Memory", "First pattern", "Promotes", "A trigger"];
  replace(results, matches.length
    ? [plainTable("Results", heads, body, { kind: ".results" }), more]
    : h("div.empty", "No memory fits this. Search for a shorter text."));
}

function matchRow({ name, pattern, promotes, trigger }, text) {
  const wanted = text.trim().toLowerCase();
  const marks = (one) => (one.toLowerCase().includes(wanted) ? ["tok", "found"] : []);
  return h("tr", h("th", { scope: "row" }, memoryName(name)),
    h("td", pattern === null ? h("span.quiet", "–") : h("bdi", marked(cutText(pattern, 120), text.trim()))),
    h("td", promotes.map((one) => [token(one, ...marks(one)), " "])),
    h("td.prefixes", trigger === null ? h("span.quiet", "–") : h("bdi", triggerExcerpt(trigger, text))));
}

// The end of a trigger, and what of it is needed to show the match.
function triggerExcerpt(trigger, text) {
  const wanted = text.replaceAll("␣", " ");
  const at = trigger.toLowerCase().indexOf(wanted.toLowerCase());
  const first = Math.max(0, Math.min(trigger.length - EXCERPT.end, at < 0 ? Infinity : at - EXCERPT.before));
  const start = /^[\uDC00-\uDFFF]/.test(trigger.slice(first)) ? first + 1 : first; // not in the middle of a character
  return [start > 0 ? "…" : "", marked(seen(trigger.slice(start)), wanted)];
}

// Text with the first place of the wanted one underlined; unmarked where lower case has another length.
function marked(shown, wanted) {
  const lowered = shown.toLowerCase();
  const at = lowered.length === shown.length ? lowered.indexOf(wanted.toLowerCase()) : -1;
  if (at < 0) return [shown];
  const end = at + wanted.length;
  return [shown.slice(0, at), h("span.tok.found", shown.slice(at, end)), shown.slice(end)];
}
