// Search for memories by trigger text, promoted token, pattern and measures.
import { getJson, askModel, isCancelled } from "./requests.js";
import { h, replace, visibleText, token, whole } from "./dom.js";
import { pageLink, withQuery } from "./links.js";
import { countOf, cutText, urlParameter, updateUrl, needsModel } from "./widgets.js";
import { fillSearchForm, searchForm, searchParameters } from "./search_form.js";
import { resultRow, resultsTable } from "./search_results.js";
import { term } from "./terms.js";

const PAGE_OF_RESULTS = 100;
const MAX_RESTORED = 2000; // results loaded again when a URL is opened

export async function searchPage(place, _, about) {
  document.title = `Search – ${visibleText(about.name)} – ffscope`;
  const view = { about, query: {}, shown: 0, count: 0, controller: null, body: h("tbody") };
  view.form = searchForm((fields) => {
    updateUrl({ ...fields, shown: null, all: null }, { push: true });
    readSearch(view);
  });
  view.sort = (sort) => {
    updateUrl({ sort, shown: null });
    readSearch(view);
  };
  view.status = h("p.quiet.count", { role: "status" });
  view.results = h("div");
  view.more = h("p");
  replace(place, h("h1", "Search for memories"), searchIntroduction(), view.form, view.status, view.results, view.more);
  addEventListener("popstate", () => readSearch(view));
  await readSearch(view);
}

function searchIntroduction() {
  return h("p.quiet", "Find ", term("memory", "memories"), " by the text of their ", term("trigger", "triggers"),
    ", the tokens that their ", term("value"), " promotes, their ", term("pattern", "patterns"), " or their measures.");
}

// Fills the form from the URL and requests the results.
async function readSearch(view) {
  view.controller?.abort();
  view.query = Object.fromEntries(searchParameters().map((name) => [name, urlParameter(name)]));
  fillSearchForm(view.form, view.query);
  view.shown = 0;
  replace(view.more);
  replace(view.body);
  if (!Object.values(view.query).some(Boolean)) {
    replace(view.status);
    replace(view.results, exampleQueries());
    return;
  }
  view.ranksAll = Boolean(view.query.promotes) && urlParameter("all") === "yes";
  if (view.ranksAll) return rankAll(view);
  replace(view.status, "Searching …");
  const count = Math.min(MAX_RESTORED, Number(urlParameter("shown")) || PAGE_OF_RESULTS);
  let hasRows = await loadMore(view);
  while (hasRows && view.shown < Math.min(count, view.count)) hasRows = await loadMore(view);
}

// Ranks all memories of the model for one token; of the other fields only the layers apply.
async function rankAll(view) {
  const { promotes, layers } = view.query;
  const say = (sentence) => replace(view.status, h("bdi", sentence));
  replace(view.results);
  if (!view.about.model) return say(needsModel(view.about));
  try {
    const parameters = { token: promotes, layers, count: PAGE_OF_RESULTS };
    const ranked = await askModel("/search/token.json", parameters, { waiting: say, place: "search" });
    replace(view.results, resultsTable(view, ranked.rows));
    view.body.append(...ranked.rows.map((row) => resultRow(view, row)));
    replace(view.status,
      `The ${whole(ranked.rows.length)} of ${whole(ranked.count)} memories whose values raise the logit of `,
      token(ranked.token.token), ` most above the mean of all ${whole(ranked.vocabulary)} tokens. `,
      searchLink({ promotes, layers }, "Search only the 20 top tokens of each value"));
  } catch (error) {
    if (!isCancelled(error)) showProblem(view, error);
  }
}

// A link to the ranking of all memories, which also covers tokens below the 20 top ones.
function rankAllOffer({ about, query: { promotes, layers } }) {
  if (!promotes || !about.model) return null;
  return h("p", searchLink({ promotes, layers, all: "yes" }, "Rank all memories for the token ", h("bdi", cutText(promotes, 60))),
    ", by how far their values raise its logit above the mean of all tokens.");
}

function showProblem(view, error) {
  replace(view.status);
  replace(view.more);
  replace(view.results, h("div.problem", { role: "alert" }, h("bdi", cutText(error.message, 600))));
}

// Loads the next page of results; true if any are shown.
async function loadMore(view) {
  view.controller?.abort();
  view.controller = new AbortController();
  try {
    const parameters = { ...view.query, limit: PAGE_OF_RESULTS, offset: view.shown || null };
    showResults(view, await getJson("/search.json", parameters, { signal: view.controller.signal }));
    return view.shown > 0;
  } catch (error) {
    if (!isCancelled(error)) showProblem(view, error);
    return false;
  }
}

function showResults(view, { rows, count, milliseconds }) {
  if (!view.shown) replace(view.results, rankAllOffer(view), rows.length ? resultsTable(view, rows) : noResults(view.query));
  view.body.append(...rows.map((row) => resultRow(view, row)));
  view.count = rows.length || !view.shown ? count : view.shown; // past the end the count is 0
  view.shown += rows.length;
  replace(view.status, `${countOf(view.count, "memory", "memories")} in ${countOf(milliseconds, "millisecond")}`);
  offerMore(view);
}

function offerMore(view) {
  const rest = view.count - view.shown;
  const onclick = async () => {
    const from = view.shown;
    await loadMore(view);
    updateUrl({ shown: view.shown > PAGE_OF_RESULTS ? view.shown : null });
    view.body.children[from]?.querySelector("a")?.focus();
  };
  const label = `Show ${whole(Math.min(rest, PAGE_OF_RESULTS))} more of ${whole(rest)}`;
  replace(view.more, rest > 0 && h("button", { type: "button", onclick }, label));
}

function searchLink(query, ...label) {
  return h("a", { href: withQuery(pageLink("search"), query) }, label);
}

function noResults(query) {
  const used = Object.entries(query).filter(([name, value]) => value && !["sort", "loose"].includes(name));
  const loosen = query.promotes && !query.loose && h("li", searchLink({ ...query, loose: "yes" }, "ignore space and case"));
  const advice = "No memory matches. Try a shorter text, a wider range or more layers.";
  if (used.length < 2 && !loosen) return h("div.empty", advice);
  const without = ([name, value]) =>
    h("li", searchLink({ ...query, [name]: "" }, "without ", h("bdi", `${name} ${cutText(value, 60)}`)));
  const links = h("ul", loosen, used.length < 2 ? null : used.map(without));
  return h("div.empty", "No memory matches all conditions. Relax one:", links);
}

const EXAMPLE_QUERIES = [
  ["Memories with “because” in a trigger", { trigger: "because" }],
  ["Memories whose value agrees with the top trigger, highest probability first", { agrees: "yes", sort: "max_prob" }],
  ["Memories that fire on less than 1 % of the prefixes, highest maximum coefficient first", { fires: "..0.01", sort: "maximum" }],
];

function exampleQueries() {
  return h("div.empty", "Fill in the form, or start with one of these searches:",
    h("ul", EXAMPLE_QUERIES.map(([label, query]) => h("li", searchLink(query, label)))));
}
