// One memory: what its key fires on, what its value promotes, and whether the two agree.
import { bdi, h, real, replace, seen, share, whole } from "./dom.js";
import { coefficientHistogram } from "./histogram.js";
import { exportedMemories, isExport, layerLink, memoryLink, pageLink, withQuery } from "./links.js";
import { measureHelp } from "./measures.js";
import { memoryExamples } from "./memory_examples.js";
import { memoryPatterns } from "./memory_patterns.js";
import { valuePart } from "./memory_parts.js";
import { panelSections } from "./panels.js";
import { similarPart } from "./memory_similar.js";
import { ownTextPart } from "./memory_text.js";
import { agreesMark, cutText, missingStages, nextRankWords } from "./widgets.js";

export async function memoryPage(place, twin, about) {
  document.title = `${twin.memory} – ${seen(about.name)} – ffscope`;
  const examples = memoryExamples(twin, about);
  replace(place,
    h("div.title", h("h1", twin.memory), memoryNeighbours(twin)),
    memorySummary(twin),
    h("div.sides",
      h("section.examples", { "aria-label": "Examples" }, examples.element),
      h("div.aside",
        memoryPart("Value", valuePart(twin), missingStages(twin.missing, OWN_PARTS.value)),
        memoryPart("Coefficients", coefficientHistogram(twin)),
        memoryPart("Patterns", memoryPatterns(twin, examples), missingStages(twin.missing, OWN_PARTS.patterns)),
        panelSections(twin.panels), missingPanels(twin.missing),
        memoryPart("Similar memories", similarPart(twin, about)))),
    ownTextPart(twin, about));
  examples.begin();
  listenForNeighbours(twin);
}

// The stages that have parts of this page's own; what others show is in their panels.
const OWN_PARTS = { value: ["values", "agreement"], patterns: ["patterns"] };

// The stages that would have panels here, each with how to make it.
function missingPanels(missing) {
  const others = missing.map(({ stage }) => stage).filter((stage) => !Object.values(OWN_PARTS).flat().includes(stage));
  return others.map((stage) => memoryPart(seen(stage[0].toUpperCase() + stage.slice(1)), null, missingStages(missing, [stage])));
}

function memoryPart(title, said, missing = null) {
  return said || missing ? h("section.part", h("h2", title), said, missing) : null;
}

// Key, word, memory, address.
function neighboursOf(twin) {
  const { previous, next, random } = isExport() ? exportedNeighbours(twin.memory) : twin;
  const named = [["p", "Previous", previous], ["n", "Next", next], ["r", "Random", random]];
  return named.map(([key, word, name]) => ({ key, word, name, href: name && memoryLink(name) }));
}

// Of those that have a page here.
function exportedNeighbours(memory) {
  const names = [...exportedMemories()];
  const at = names.indexOf(memory);
  return { previous: names[at - 1], next: names[at + 1], random: names[Math.floor(Math.random() * names.length)] };
}

function memoryNeighbours(twin) {
  const links = neighboursOf(twin).map(({ key, word, name, href }) =>
    (href ? h("a", { href, title: `${name} (key ${key})` }, word) : h("span.quiet", word)));
  return h("nav.near", { "aria-label": "Memories" }, h("a", { href: layerLink(twin.layer) }, `Layer ${twin.layer}`), links);
}

function listenForNeighbours(twin) {
  const typing = (event) => event.target.closest("input, textarea, select, [contenteditable]");
  const all = neighboursOf(twin);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event)) return;
    const found = all.find(({ key }) => key === event.key);
    if (found?.href) location.assign(found.href);
  });
}

// What there is to know first: what it does, in one line, and its numbers.
function memorySummary(twin) {
  const counted = `${whole(twin.fired)} of ${whole(twin.seen)}`;
  const fires = ["Fires on ", h("strong", share(twin.seen ? twin.fired / twin.seen : null)), ` of prefixes (${counted})`];
  const numbers = `; maximum ${real(twin.maximum)}, mean ${real(twin.mean)}`;
  const said = twin.triggers.length || twin.fired
    ? [fires, numbers, agreementWords(twin.value), "."]
    : [h("strong", "Dead"), ": it fired on no prefix of the corpus."];
  return [
    h("p.gist", bdi(cutText(twin.gist, 300)), promptLink(twin)),
    h("p.summary", said),
    h("p.quiet.small", "Model ", bdi(cutText(twin.model, 120)), `, ${twin.dtype}`, twin.lens ? `; lens ${twin.lens}.` : ".",
      h("span.neighbour-keys", " Keys: p previous, n next, r random.")),
  ];
}

function agreementWords(value) {
  if (!value || value.agrees === null) return null;
  return [`; ${nextRankWords(value)} (`, h("span", { title: measureHelp("agrees") }, "agreement: "), agreesMark(value.agrees), ")"];
}

// The top trigger, as far as the memory has read it, as a prompt. There is no such page in an export.
function promptLink({ triggers: [top] }) {
  if (isExport() || !top) return null;
  const text = top.tokens.slice(0, top.position + 1).join("");
  return [" ", h("a", { href: withQuery(pageLink("prompt"), { text }) }, "Open its top trigger as a prompt")];
}
