// Prefixes of a memory in tabs, coloured by the live model if there is one.
import { askModel, isCancelled } from "./requests.js";
import { h, replace, whole } from "./dom.js";
import { exampleRow, ranksOf } from "./example_row.js";
import { isExport } from "./links.js";
import { countOf, cutText, urlParameter, updateUrl, needsModel } from "./widgets.js";

const SHOWN_AT_FIRST = 15;
const MAX_SENTENCES = 100; // per question to the model
const EXAMPLE_TABS = {
  top: { head: "Top", from: "triggers", about: "The memory’s triggers: the prefixes with the highest coefficients." },
  quantiles: { head: "By quantile", from: "quantiles", about: "Prefixes on which it fires, from high to low coefficients." },
  random: { head: "Random", from: "sample", about: "A random sample of the prefixes on which the memory fires." },
  lowest: { head: "Lowest", from: "negative", about: "The prefixes with the lowest coefficients." },
};

const MARKS = "A prefix ends at the underlined token; the framed token is the next one.";

// The element, and functions for the list of patterns: `highlight(ranks)` and `only(ranks)`. `begin()` asks the model.
export function memoryExamples(data, about) {
  const view = { data, about, tab: "top", all: false, only: null, coefficients: new Map(), rows: [], begun: false };
  const names = Object.keys(EXAMPLE_TABS).filter((name) => name === "top" || data[EXAMPLE_TABS[name].from]?.length);
  if (names.includes(urlParameter("tab"))) view.tab = urlParameter("tab");
  view.list = h("div", { id: "examples", role: "tabpanel" });
  view.status = h("p.quiet.small", { role: "status" });
  const tabs = exampleTabs(names, view);
  drawExamples(view);
  return {
    element: h("div", tabs, view.list, view.status),
    highlight: (ranks) => highlightRanks(view, ranks),
    only: (ranks) => {
      Object.assign(view, { only: ranks && new Set(ranks), all: false, tab: ranks ? "top" : view.tab });
      drawExamples(view);
    },
    begin: () => {
      view.begun = true;
      colourExamples(view);
    },
  };
}

function exampleTabs(names, view) {
  const choose = (name) => {
    Object.assign(view, { tab: name, all: false });
    updateUrl({ tab: name === "top" ? null : name });
    drawExamples(view);
  };
  view.buttons = new Map(names.map((name) => {
    const { head, from } = EXAMPLE_TABS[name];
    const attributes = { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "examples", onclick: () => choose(name) };
    return [name, h("button", attributes, head, " ", h("span.quiet", whole(view.data[from].length)))];
  }));
  const onkeydown = (event) => {
    const way = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!way) return;
    const next = names[(names.indexOf(view.tab) + way + names.length) % names.length];
    choose(next);
    view.buttons.get(next).focus();
  };
  return h("div.tabs", { role: "tablist", "aria-label": "Examples", onkeydown }, [...view.buttons.values()]);
}

function markTab(view) {
  for (const [name, button] of view.buttons) {
    button.setAttribute("aria-selected", String(name === view.tab));
    button.tabIndex = name === view.tab ? 0 : -1;
  }
  view.list.setAttribute("aria-labelledby", `tab-${view.tab}`);
}

function drawExamples(view) {
  const { from, about } = EXAMPLE_TABS[view.tab];
  markTab(view);
  const only = view.tab === "top" ? view.only : null;
  const rows = view.data[from].filter((row) => !only || ranksOf(row).some((rank) => only.has(rank)));
  const visible = view.all ? rows : rows.slice(0, SHOWN_AT_FIRST);
  const highest = Math.max(...view.data[from].map((row) => Math.abs(row.coefficient ?? 0)), 0) || 1;
  view.rows = visible.map((row) => exampleRow(row, { highest, byQuantile: view.tab === "quantiles" }));
  for (const { row, colour } of view.rows) colour(view.coefficients.get(row.sentence), view.data.maximum);
  const rest = rows.length - visible.length;
  const more = rest > 0 && h("p", h("button", { type: "button", onclick: () => showRest(view) }, `Show ${whole(rest)} more`));
  const dead = view.tab === "top" && !only;
  const none = dead ? "This memory is dead: it fired on no prefix of the corpus." : "There are no such prefixes.";
  replace(view.list, h("p.quiet.small", only ? `${countOf(rows.length, "trigger")} of the selected pattern.` : about, " ", MARKS),
    rows.length ? null : h("p.empty", none), view.rows.map(({ element }) => element), more);
  if (view.begun) colourExamples(view);
}

function showRest(view) {
  const from = view.rows.length;
  view.all = true;
  drawExamples(view);
  view.rows[from]?.element.querySelector("button")?.focus(); // the focus was on the removed button
}

function highlightRanks(view, ranks) {
  const covered = new Set(view.tab === "top" ? ranks : []);
  for (const { row, element } of view.rows) element.classList.toggle("covered", ranksOf(row).some((rank) => covered.has(rank)));
}

// Requests the missing coefficients of the rows: first those in the window, in one question, then the others. Switching tabs
// cancels the question.
async function colourExamples(view) {
  if (isExport() || !view.rows.length) return;
  const say = (sentence) => replace(view.status, h("bdi", sentence));
  if (!view.about.model) return say(`Only the trigger token is coloured. ${needsModel(view.about, "Colouring every token")}`);
  try {
    for (const sentences of sentenceBatches(view)) await colourSome(view, sentences, say);
    say("Every token is coloured by the memory’s coefficient there; point at a token for the number.");
  } catch (error) {
    if (!isCancelled(error)) say(cutText(error.message, 300));
  }
}

// Sentences without coefficients, in batches that the server accepts; those in the window first.
function sentenceBatches({ rows, coefficients }) {
  const missing = (part) => part.map(({ row }) => row.sentence).filter((sentence) => !coefficients.has(sentence));
  const visible = new Set(missing(rows.filter(({ element }) => isInWindow(element))));
  const others = new Set(missing(rows).filter((sentence) => !visible.has(sentence)));
  return [visible, others].flatMap((part) => inBatches([...part], MAX_SENTENCES));
}

function inBatches(all, size) {
  return Array.from({ length: Math.ceil(all.length / size) }, (_, index) => all.slice(index * size, (index + 1) * size));
}

function isInWindow(element) {
  const { top, bottom } = element.getBoundingClientRect();
  return bottom > 0 && top < innerHeight;
}

async function colourSome(view, sentences, say) {
  const path = `/L${view.data.layer}/${view.data.number}/coefficients.json`;
  const answer = await askModel(path, { sentences: sentences.join(",") }, { waiting: say, place: "examples" });
  for (const [sentence, coefficients] of Object.entries(answer.sentences)) view.coefficients.set(Number(sentence), coefficients);
  for (const { row, colour } of view.rows) {
    if (sentences.includes(row.sentence)) colour(view.coefficients.get(row.sentence), answer.maximum ?? view.data.maximum);
  }
}
