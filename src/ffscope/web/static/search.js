// Memories by what triggers them, what they promote, what they share, and by their numbers.
import { getJson, askModel, isCancelled } from "./requests.js";
import { h, replace, visibleText, token, whole } from "./dom.js";
import { pageLink, withQuery } from "./links.js";
import { countOf, cutText, urlParameter, updateUrl, needsModel } from "./widgets.js";
import { fillSearchForm, searchForm, searchWords } from "./search_form.js";
import { resultRow, resultsTable } from "./search_results.js";

const PAGE_OF_RESULTS = 100;
const MOST_RESULTS = 2000; // that a link asks for again

export async function searchPage(place, data, about) {
  document.title = `Search – ${visibleText(about.name)} – ffscope`;
  const view = { about, asked: {}, shown: 0, count: 0, controller: null, body: h("tbody") };
  view.form = searchForm((said) => {
    updateUrl({ ...said, shown: null, all: null }, { push: true });
    readSearch(view);
  });
  view.sort = (sort) => {
    updateUrl({ sort, shown: null });
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
  view.asked = Object.fromEntries(searchWords().map((name) => [name, urlParameter(name)]));
  fillSearchForm(view.form, view.asked);
  view.shown = 0;
  replace(view.more);
  replace(view.body);
  if (!Object.values(view.asked).some(Boolean)) {
    replace(view.status);
    replace(view.results, exampleQueries());
    return;
  }
  view.ranksAll = Boolean(view.asked.promotes) && urlParameter("all") === "yes";
  if (view.ranksAll) return rankAll(view);
  replace(view.status, "Searching …");
  const wanted = Math.min(MOST_RESULTS, Number(urlParameter("shown")) || PAGE_OF_RESULTS);
  let going = await askForMore(view);
  while (going && view.shown < Math.min(wanted, view.count)) going = await askForMore(view);
}

// Every memory of the model, ranked for one token; of the other fields only the layers count.
async function rankAll(view) {
  const { promotes, layers } = view.asked;
  const say = (sentence) => replace(view.status, h("bdi", sentence));
  replace(view.results);
  if (!view.about.model) return say(needsModel(view.about));
  try {
    const asked = { token: promotes, layers, count: PAGE_OF_RESULTS };
    const ranked = await askModel("/search/token.json", asked, { waiting: say, place: "search" });
    replace(view.results, resultsTable(view, ranked.rows));
    view.body.append(...ranked.rows.map((row) => resultRow(view, row)));
    replace(view.status, `The ${whole(ranked.rows.length)} of ${whole(ranked.count)} memories that most raise the logit of `,
      token(ranked.token.token), ` above the mean of all ${whole(ranked.vocabulary)} tokens. `,
      searchLink({ promotes, layers }, "Search the 20 top tokens"));
  } catch (error) {
    if (!isCancelled(error)) showProblem(view, error);
  }
}

// What a search of the 20 top tokens may have missed.
function rankAllOffer({ about, asked: { promotes, layers } }) {
  if (!promotes || !about.model) return null;
  return h("p", searchLink({ promotes, layers, all: "yes" }, "Rank all memories for the token ", h("bdi", cutText(promotes, 60))),
    ", by how far their values raise its logit above the mean of all tokens.");
}

function showProblem(view, error) {
  replace(view.status);
  replace(view.more);
  replace(view.results, h("div.problem", { role: "alert" }, h("bdi", cutText(error.message, 600))));
}

// Whether it was answered with rows.
async function askForMore(view) {
  view.controller?.abort();
  view.controller = new AbortController();
  try {
    const asked = { ...view.asked, limit: PAGE_OF_RESULTS, offset: view.shown || null };
    showFound(view, await getJson("/search.json", asked, { signal: view.controller.signal }));
    return view.shown > 0;
  } catch (error) {
    if (!isCancelled(error)) showProblem(view, error);
    return false;
  }
}

function showFound(view, { rows, count, milliseconds }) {
  if (!view.shown) replace(view.results, rankAllOffer(view), rows.length ? resultsTable(view, rows) : nothingFound(view.asked));
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
    updateUrl({ shown: view.shown > PAGE_OF_RESULTS ? view.shown : null });
    view.body.children[from]?.querySelector("a")?.focus();
  };
  const word = `Show ${whole(Math.min(rest, PAGE_OF_RESULTS))} more of ${whole(rest)}`;
  replace(view.more, rest > 0 && h("button", { type: "button", onclick }, word));
}

function searchLink(asked, ...words) {
  return h("a", { href: withQuery(pageLink("search"), asked) }, words);
}

function nothingFound(asked) {
  const used = Object.entries(asked).filter(([name, value]) => value && !["sort", "loose"].includes(name));
  const loosen = asked.promotes && !asked.loose && h("li", searchLink({ ...asked, loose: "yes" }, "ignore space and case"));
  const advice = "No memory fits this. Ask for less of the text, a wider range or more layers.";
  if (used.length < 2 && !loosen) return h("div.empty", advice);
  const without = ([name, value]) =>
    h("li", searchLink({ ...asked, [name]: "" }, "without ", h("bdi", `${name} ${cutText(value, 60)}`)));
  return h("div.empty", "No memory fits all of this. Loosen it:", h("ul", loosen, used.length < 2 ? null : used.map(without)));
}

const EXAMPLE_QUERIES = [
  ["Memories with “because” in a trigger", { trigger: "because" }],
  ["Memories with agreement of value and top trigger, the surest first", { agrees: "yes", sort: "max_prob" }],
  ["Memories that fire on less than 1 % of the prefixes, the highest maximum first", { fires: "..0.01", sort: "maximum" }],
];

function exampleQueries() {
  return h("div.empty", "Fill in what you look for, or begin with one of these:",
    h("ul", EXAMPLE_QUERIES.map(([words, asked]) => h("li", searchLink(asked, words)))));
}
