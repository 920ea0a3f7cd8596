// The prefixes of a memory in tabs, coloured by the live model where there is one.
import { askModel, isTakenBack } from "./ask.js";
import { h, replace, whole } from "./dom.js";
import { exampleRow, ranksOf } from "./example_row.js";
import { isExport } from "./links.js";
import { countOf, cutText, inLocation, keepInLocation, needsModel } from "./widgets.js";

const SHOWN_AT_FIRST = 15;
const MOST_SENTENCES = 100; // of one question to the model
const EXAMPLE_TABS = {
  top: { head: "Top", from: "triggers", about: "The prefixes with the highest coefficients." },
  quantiles: { head: "By quantile", from: "quantiles", about: "Prefixes from all through the coefficients on which it fires." },
  random: { head: "Random", from: "sample", about: "Prefixes on which it fires, drawn by lot." },
  lowest: { head: "Lowest", from: "negative", about: "The prefixes with the lowest coefficients." },
};

// The element, and what the patterns beside it do to the list: `highlight(ranks)`, `only(ranks)`. `begin()` asks the model.
export function memoryExamples(twin, about) {
  const view = { twin, about, tab: "top", all: false, only: null, known: new Map(), rows: [], begun: false };
  const names = Object.keys(EXAMPLE_TABS).filter((name) => name === "top" || twin[EXAMPLE_TABS[name].from]?.length);
  if (names.includes(inLocation("tab"))) view.tab = inLocation("tab");
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
    keepInLocation({ tab: name === "top" ? null : name });
    drawExamples(view);
  };
  view.buttons = new Map(names.map((name) => {
    const { head, from } = EXAMPLE_TABS[name];
    const attributes = { type: "button", role: "tab", id: `tab-${name}`, "aria-controls": "examples", onclick: () => choose(name) };
    return [name, h("button", attributes, head, " ", h("span.quiet", whole(view.twin[from].length)))];
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
  const rows = view.twin[from].filter((row) => !only || ranksOf(row).some((rank) => only.has(rank)));
  const shown = view.all ? rows : rows.slice(0, SHOWN_AT_FIRST);
  const highest = Math.max(...view.twin[from].map((row) => Math.abs(row.coefficient ?? 0)), 0) || 1;
  view.rows = shown.map((row) => exampleRow(row, { highest, byQuantile: view.tab === "quantiles" }));
  for (const one of view.rows) one.colour(view.known.get(one.row.sentence), view.twin.maximum);
  const rest = rows.length - shown.length;
  const more = rest > 0 && h("p", h("button", { type: "button", onclick: () => showRest(view) }, `Show ${whole(rest)} more`));
  const dead = view.tab === "top" && !only;
  const none = dead ? "This memory is dead: it fired on no prefix of the corpus." : "There are no such prefixes.";
  replace(view.list, h("p.quiet.small", only ? `${countOf(rows.length, "trigger")} of the chosen pattern.` : about),
    rows.length ? null : h("p.empty", none), view.rows.map((one) => one.element), more);
  if (view.begun) colourExamples(view);
}

function showRest(view) {
  const from = view.rows.length;
  view.all = true;
  drawExamples(view);
  view.rows[from]?.element.querySelector("button")?.focus(); // where the button was
}

function highlightRanks(view, ranks) {
  const wanted = new Set(view.tab === "top" ? ranks : []);
  for (const { row, element } of view.rows) element.classList.toggle("covered", ranksOf(row).some((rank) => wanted.has(rank)));
}

// Asks for the coefficients of what is shown and not known yet: first, in one question, those of the rows in the window, then
// the others. Another tab takes the question back.
async function colourExamples(view) {
  if (isExport() || !view.rows.length) return;
  const say = (sentence) => replace(view.status, h("bdi", sentence));
  if (!view.about.model) return say(`Only the trigger token is coloured. For all of them: ${needsModel(view.about)}`);
  try {
    for (const sentences of sentenceBatches(view)) await colourSome(view, sentences, say);
    say("Tokens are coloured by their coefficient; point at one for its number.");
  } catch (error) {
    if (!isTakenBack(error)) say(cutText(error.message, 300));
  }
}

// Sentences without coefficients, in batches that the server accepts, those in the window first.
function sentenceBatches({ rows, known }) {
  const unknown = (some) => some.map(({ row }) => row.sentence).filter((sentence) => !known.has(sentence));
  const visible = new Set(unknown(rows.filter(({ element }) => isInWindow(element))));
  const others = new Set(unknown(rows).filter((sentence) => !visible.has(sentence)));
  return [visible, others].flatMap((some) => inBatches([...some], MOST_SENTENCES));
}

function inBatches(all, size) {
  return Array.from({ length: Math.ceil(all.length / size) }, (_, index) => all.slice(index * size, (index + 1) * size));
}

function isInWindow(element) {
  const { top, bottom } = element.getBoundingClientRect();
  return bottom > 0 && top < innerHeight;
}

async function colourSome(view, sentences, say) {
  const path = `/L${view.twin.layer}/${view.twin.number}/coefficients.json`;
  const answer = await askModel(path, { sentences: sentences.join(",") }, { waiting: say, place: "examples" });
  for (const [sentence, coefficients] of Object.entries(answer.sentences)) view.known.set(Number(sentence), coefficients);
  for (const one of view.rows) {
    if (sentences.includes(one.row.sentence)) one.colour(view.known.get(one.row.sentence), answer.maximum ?? view.twin.maximum);
  }
}
