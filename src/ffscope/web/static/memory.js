// One memory: the prefixes its key fires on, the tokens its value promotes, and whether the two agree.
import { bdi, h, real, replace, visibleText, share, whole } from "./dom.js";
import { coefficientHistogram } from "./histogram.js";
import { exportedMemories, isExport, layerLink, memoryLink, pageLink, withQuery } from "./links.js";
import { memoryExamples } from "./memory_examples.js";
import { memoryPatterns } from "./memory_patterns.js";
import { valuePart } from "./memory_value.js";
import { panelSections } from "./panels.js";
import { similarPart } from "./memory_similar.js";
import { term, withTerms } from "./terms.js";
import { ownTextPart } from "./memory_text.js";
import { agreesMark, cutText, missingStages, nextRankWords } from "./widgets.js";

export async function memoryPage(place, data, about) {
  document.title = `${data.memory} – ${visibleText(about.name)} – ffscope`;
  const examples = memoryExamples(data, about);
  replace(place,
    h("div.title", h("h1", data.memory), memoryNeighbours(data)),
    memorySummary(data),
    h("div.sides",
      h("section.examples", { "aria-label": "Examples" }, examples.element),
      h("div.aside",
        memoryPart("Promoted tokens", valuePart(data), missingStages(data.missing, OWN_PARTS.value)),
        memoryPart("Distribution of the coefficient", coefficientHistogram(data)),
        memoryPart("Patterns", memoryPatterns(data, examples), missingStages(data.missing, OWN_PARTS.patterns)),
        panelSections(data.panels), missingPanels(data.missing),
        memoryPart("Similar memories", similarPart(data, about)))),
    ownTextPart(data, about));
  examples.begin();
  listenForNeighbours(data);
}

// The stages shown in this page's own sections; the others have panels.
const OWN_PARTS = { value: ["values", "agreement"], patterns: ["patterns"] };

// A section for each missing stage that would have a panel here, with the command that runs it.
function missingPanels(missing) {
  const others = missing.map(({ stage }) => stage).filter((stage) => !Object.values(OWN_PARTS).flat().includes(stage));
  const title = (stage) => visibleText(stage[0].toUpperCase() + stage.slice(1));
  return others.map((stage) => memoryPart(title(stage), null, missingStages(missing, [stage])));
}

function memoryPart(title, content, missing = null) {
  return content || missing ? h("section.part", h("h2", title), content, missing) : null;
}

// The previous, next and a random memory: shortcut key, label, name and address.
function neighboursOf(data) {
  const { previous, next, random } = isExport() ? exportedNeighbours(data.memory) : data;
  const rows = [["p", "Previous", previous], ["n", "Next", next], ["r", "Random", random]];
  return rows.map(([key, label, name]) => ({ key, label, name, href: name && memoryLink(name) }));
}

// Among the memories that have a page in the export.
function exportedNeighbours(memory) {
  const names = [...exportedMemories()];
  const at = names.indexOf(memory);
  return { previous: names[at - 1], next: names[at + 1], random: names[Math.floor(Math.random() * names.length)] };
}

function memoryNeighbours(data) {
  const links = neighboursOf(data).map(({ key, label, name, href }) =>
    (href ? h("a", { href, title: `${name} (key ${key})` }, label) : h("span.quiet", label)));
  return h("nav.near", { "aria-label": "Memories" }, h("a", { href: layerLink(data.layer) }, `Layer ${data.layer}`), links);
}

function listenForNeighbours(data) {
  const typing = (event) => event.target.closest("input, textarea, select, [contenteditable]");
  const neighbours = neighboursOf(data);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event)) return;
    const target = neighbours.find(({ key }) => key === event.key);
    if (target?.href) location.assign(target.href);
  });
}

// What the memory does in one line, and its numbers.
function memorySummary(data) {
  const counted = `${whole(data.fired)} of ${whole(data.seen)}`;
  const rate = share(data.seen ? data.fired / data.seen : null);
  const fires = () =>
    ["The ", term("key"), " of this ", term("memory"), " fires on ", h("strong", rate), " of ", term("prefix", "prefixes"),
      ` (${counted})`];
  const numbers = () => ["; ", term("coefficient"), `: maximum ${real(data.maximum)}, mean ${real(data.mean)}`];
  const words = data.triggers.length || data.fired
    ? [fires(), numbers(), agreementWords(data.value), "."]
    : [h("strong", "Dead"), ": this ", term("memory"), " fired on no ", term("prefix"), " of the corpus."];
  return [
    h("p.gist", bdi(cutText(data.gist, 300)), promptLink(data)),
    h("p.summary", words),
    h("p.quiet.small", "Model ", bdi(cutText(data.model, 120)), `, ${data.dtype}`,
      data.lens ? ["; ", term("lens"), ` ${data.lens}.`] : ".",
      h("span.neighbour-keys", " Keys: p previous, n next, r random.")),
  ];
}

function agreementWords(value) {
  if (!value || value.agrees === null) return null;
  const rank = withTerms(nextRankWords(value), { trigger: ["trigger"], value: ["value"] });
  return ["; ", rank, "; ", term("agreement"), ": ", agreesMark(value.agrees)];
}

// A link to the prompt page with the top trigger as text; an export has no such page.
function promptLink({ triggers: [top] }) {
  if (isExport() || !top) return null;
  const text = top.tokens.slice(0, top.position + 1).join("");
  return [" ", h("a", { href: withQuery(pageLink("prompt"), { text }) }, "Open its top trigger as a prompt")];
}
