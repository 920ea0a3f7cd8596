// Which page this is, what it shows, and what stands around it.
import { aboutStudy } from "./about.js";
import { annotatePage } from "./annotate.js";
import { ask, isTakenBack } from "./ask.js";
import { append, byId, h, replace } from "./dom.js";
import { header } from "./header.js";
import { indexSearchPage } from "./index_search.js";
import { isExport } from "./links.js";
import { layerPage } from "./layer.js";
import { memoryPage } from "./memory.js";
import { overviewPage } from "./overview.js";
import { promptPage } from "./prompt.js";
import { searchPage } from "./search.js";

// Each takes the page's place on the screen and its JSON twin; those that ask for themselves have no twin to begin with.
const PAGES = {
  overview: overviewPage, layer: layerPage, memory: memoryPage, prompt: promptPage, annotate: annotatePage,
  search: (...page) => (isExport() ? indexSearchPage : searchPage)(...page),
};
const ASK_THEMSELVES = new Set(["prompt", "search", "annotate"]);

export function problem(error) {
  return h("div.problem", { role: "alert" }, h("strong", "This cannot be shown."), " ", h("bdi", error.message));
}

async function twin(page) {
  if (isExport()) return JSON.parse(byId("page-twin").textContent);
  if (ASK_THEMSELVES.has(page)) return null;
  return ask(location.pathname === "/" ? "/index.json" : `${location.pathname}.json`);
}

async function begin() {
  const page = document.documentElement.dataset.page;
  const about = aboutStudy();
  const place = h("main", { id: "main", tabindex: "-1" });
  if (page === "error") {
    document.body.prepend(header(page, about)); // what is wrong stands there already
    return;
  }
  append(document.body, [h("a.skip", { href: "#main" }, "Skip to the page"), header(page, about), place]);
  replace(place, h("p.quiet", { role: "status" }, "Reading …"));
  try {
    const said = await twin(page);
    replace(place);
    await PAGES[page](place, said, about);
  } catch (error) {
    if (!isTakenBack(error)) replace(place, problem(error));
    if (!error.status && !isExport()) console.error(error);
  }
}

begin();
