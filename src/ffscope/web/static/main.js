// Starts the page: draws the header, loads the page's JSON and calls the function that shows it.
import { aboutStudy } from "./about.js";
import { annotatePage } from "./annotate.js";
import { getJson, isCancelled } from "./requests.js";
import { append, byId, h, replace } from "./dom.js";
import { diffPage } from "./diff.js";
import { header } from "./header.js";
import { indexSearchPage } from "./index_search.js";
import { isExport } from "./links.js";
import { layerPage } from "./layer.js";
import { leaksPage } from "./leaks.js";
import { memoryPage } from "./memory.js";
import { overviewPage } from "./overview.js";
import { promptPage } from "./prompt.js";
import { searchPage } from "./search.js";

// Each is called with the element to draw into, the page's JSON and the study's facts. Some load their data themselves.
const PAGES = {
  overview: overviewPage, layer: layerPage, memory: memoryPage, prompt: promptPage, annotate: annotatePage,
  diff: diffPage, leaks: leaksPage,
  search: (...page) => (isExport() ? indexSearchPage : searchPage)(...page),
};
const WITHOUT_DATA = new Set(["prompt", "search", "annotate"]);

export function problem(error) {
  return h("div.problem", { role: "alert" }, h("strong", "This page cannot be shown."), " ", h("bdi", error.message));
}

async function loadData(page) {
  if (isExport()) return JSON.parse(byId("page-data").textContent);
  if (WITHOUT_DATA.has(page)) return null;
  return getJson(location.pathname === "/" ? "/index.json" : `${location.pathname}.json`);
}

async function begin() {
  const page = document.documentElement.dataset.page;
  const about = aboutStudy();
  const place = h("main", { id: "main", tabindex: "-1" });
  if (page === "error") {
    document.body.prepend(header(page, about)); // the error message is already in the page
    return;
  }
  append(document.body, [h("a.skip", { href: "#main" }, "Skip to content"), header(page, about), place]);
  replace(place, h("p.quiet", { role: "status" }, "Loading …"));
  try {
    const data = await loadData(page);
    replace(place);
    await PAGES[page](place, data, about);
  } catch (error) {
    if (!isCancelled(error)) replace(place, problem(error));
    if (!error.status && !isExport()) console.error(error);
  }
}

begin();
