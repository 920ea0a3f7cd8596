// Memories by what triggers them, what they promote, what they share, and by their numbers.
import { ask, isTakenBack } from "./ask.js";
import { h, replace, seen, whole } from "./dom.js";
import { pageLink, withQuery } from "./links.js";
import { countOf, cutText, inLocation, keepInLocation } from "./saying.js";
import { fillSearchForm, searchForm, searchWords } from "./search_form.js";
import { resultRow, resultsTable } from "./search_results.js";

const PAGE_OF_RESULTS = 100;
const MOST_RESULTS = 2000; // that a link asks for again

export async function searchPage(place, twin, about) {
  document.title = `Search – ${seen(about.name)} – ffscope`;
  const view = { asked: {}, shown: 0, count: 0, controller: null, body: h("tbody") };
  view.form = searchForm((said) => {
    keepInLocation({ ...said, shown: null }, { push: true });
    readSearch(view);
  });
  view.sort = (sort) => {
    keepInLocation({ sort, shown: null });
    readSearch(view);
  };
  view.status = h("p.quiet.count", { role: "status" });
  view.results = h("div");
  view.more = h("p");
  replace(place, h("h1", "Search"), view.form, view.status, view.results, view.more);
  addEventListener("popstate", () => readSearch(view));
  await readSearch(view);
}

// What the location asks for: the form is filled with it, and the server asked.
async function readSearch(view) {
  view.controller?.abort();
  view.asked = Object.fromEntries(searchWords().map((name) => [name, inLocation(name)]));
  fillSearchForm(view.form, view.asked);
  view.shown = 0;
  replace(view.more);
  replace(view.body);
  if (!Object.values(view.asked).some(Boolean)) {
    replace(view.status);
    replace(view.results, exampleQueries());
    return;
  }
  replace(view.status, "Searching …");
  const wanted = Math.min(MOST_RESULTS, Number(inLocation("shown")) || PAGE_OF_RESULTS);
  let going = await askForMore(view);
  while (going && view.shown < Math.min(wanted, view.count)) going = await askForMore(view);
}

// Whether it was answered with rows.
async function askForMore(view) {
  view.controller?.abort();
  view.controller = new AbortController();
  try {
    const asked = { ...view.asked, limit: PAGE_OF_RESULTS, offset: view.shown || null };
    showFound(view, await ask("/search.json", asked, { signal: view.controller.signal }));
    return view.shown > 0;
  } catch (error) {
    if (isTakenBack(error)) return false;
    replace(view.status);
    replace(view.more);
    replace(view.results, h("div.problem", { role: "alert" }, h("bdi", cutText(error.message, 600))));
    return false;
  }
}

function showFound(view, { rows, count, milliseconds }) {
  if (!view.shown) replace(view.results, rows.length ? resultsTable(view, rows) : nothingFound(view.asked));
  view.body.append(...rows.map((row) => resultRow(view, row)));
  view.count = rows.length || !view.shown ? count : view.shown; // past the end nothing is counted
  view.shown += rows.length;
  replace(view.status, `${countOf(view.count, "memory", "memories")} in ${countOf(milliseconds, "millisecond")}`);
  tellRest(view);
}

function tellRest(view) {
  const rest = view.count - view.shown;
  const onclick = async () => {
    const from = view.shown;
    await askForMore(view);
    keepInLocation({ shown: view.shown > PAGE_OF_RESULTS ? view.shown : null });
    view.body.children[from]?.querySelector("a")?.focus();
  };
  const word = `Show ${whole(Math.min(rest, PAGE_OF_RESULTS))} more of ${whole(rest)}`;
  replace(view.more, rest > 0 && h("button", { type: "button", onclick }, word));
}

function searchLink(asked, ...words) {
  return h("a", { href: withQuery(pageLink("search"), asked) }, words);
}

function nothingFound(asked) {
  const used = Object.entries(asked).filter(([name, value]) => value && name !== "sort");
  if (used.length < 2) return h("div.empty", "No memory fits this. Ask for less of the text, a wider range or more layers.");
  const without = ([name, value]) =>
    h("li", searchLink({ ...asked, [name]: "" }, "without ", h("bdi", `${name} ${cutText(value, 60)}`)));
  return h("div.empty", "No memory fits all of this. Loosen it:", h("ul", used.map(without)));
}

const EXAMPLE_QUERIES = [
  ["Memories with “because” in a trigger", { trigger: "because" }],
  ["Memories whose value has as top token the next token of their top trigger, the surest first", { agrees: "yes", sort: "max_prob" }],
  ["Memories that fire on less than 1 % of the prefixes, the highest maximum first", { fires: "..0.01", sort: "maximum" }],
];

function exampleQueries() {
  return h("div.empty", "Fill in what you look for, or begin with one of these:",
    h("ul", EXAMPLE_QUERIES.map(([words, asked]) => h("li", searchLink(asked, words)))));
}
