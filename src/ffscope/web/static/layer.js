// All memories of a layer in one table, with filters.
import { h, replace, visibleText, whole } from "./dom.js";
import { drawFigures } from "./figures.js";
import { exportedMemories, isExport, layerLink } from "./links.js";
import {
  allMeasures, columnMeanings, isChoice, isRange, isWord, measureCell, measureHead, measureOptions, measuresIn,
} from "./measures.js";
import { panelSections } from "./panels.js";
import { term } from "./terms.js";
import { countOf, urlParameter, updateUrl, memoryName, missingStages } from "./widgets.js";
import { VirtualTable } from "./table.js";

export async function layerPage(place, data, about) {
  document.title = `Layer ${data.layer} – ${visibleText(about.name)} – ffscope`;
  const table = new VirtualTable({
    label: "Memories of this layer",
    columns: layerColumns(data),
    sort: urlParameter("sort"),
    onsort: (sort) => updateUrl({ sort }),
  });
  const status = h("p.quiet.count", { role: "status" });
  const rows = data.columns.memory.map((memory, index) => index);
  const filters = layerFilters(data, (test) => {
    const matching = rows.filter(test);
    const all = countOf(rows.length, "memory", "memories");
    replace(status, matching.length === rows.length ? all : `${whole(matching.length)} of ${all}`,
      rows.length && !matching.length ? ": no memory passes all filters. Relax one, or clear them." : "");
    table.show(matching);
  });
  const figures = h("div.figures");
  replace(place, h("div.title", h("h1", `Layer ${data.layer}`), layerNeighbours(data)), layerIntroduction(), exportedShare(data),
    missingStages(data.missing), filters.element, status, table.element,
    columnMeanings(measuresIn("layer").filter(({ name }) => data.columns[name])),
    data.figures?.length ? [h("h2", "Distribution of the measures"), figures] : null, panelSections(data.panels));
  filters.apply();
  await drawFigures(figures, data.figures ?? []);
}

function layerIntroduction() {
  return h("p.quiet", "One row per ", term("memory"), ". A memory fires on a ", term("prefix"), " if its ", term("coefficient"),
    " is above 0; its ", term("trigger", "triggers"), " are compared with the tokens that its ", term("value"), " promotes.");
}

function layerNeighbours({ layer, layers }) {
  const to = (number, label) =>
    (number >= 0 && number < layers ? h("a", { href: layerLink(number) }, label) : h("span.quiet", label));
  return h("nav.near", { "aria-label": "Layers" }, to(layer - 1, "Previous layer"), to(layer + 1, "Next layer"));
}

// In an export: how many memories have a page, and why the others have none.
function exportedShare({ layer, columns }) {
  const linked = columns.memory.filter((memory) => exportedMemories().has(`L${layer}.${memory}`)).length;
  if (!isExport() || linked === columns.memory.length) return null;
  const all = countOf(columns.memory.length, "memory", "memories");
  return h("p.quiet", `This export has pages for ${whole(linked)} of ${all} of this layer; those without a link `,
    "were not exported (", h("code", "ffscope export --memories …"), ").");
}

// The measure "dead" as a filter with its own labels, since it is the one used most.
const STATE = { measure: "dead", options: { "": "all", fires: "fires", dead: "dead" } };

function layerColumns({ layer, columns }) {
  const named = { name: "memory", head: "Memory", width: 6.5, key: (row) => columns.memory[row] };
  const available = measuresIn("layer").filter(({ name }) => columns[name]);
  return [{ ...named, cell: (row) => memoryName(`L${layer}.${columns.memory[row]}`) },
    ...available.map((measure) => layerColumn(measure, columns[measure.name]))];
}

function layerColumn(measure, values) {
  const { name, help: title } = measure;
  const head = measureHead(measure);
  const width = Math.max(measure.width, 0.55 * head.length + 1.5); // rem; so that the head is not cut
  const cell = name === STATE.measure ? stateCell : (value) => measureCell(measure, value);
  const key = measure.kind === "token" ? (text) => text?.replace(/^[␣ ]+/, "").toLowerCase() ?? null : (value) => value;
  const number = isRange(measure);
  return { name, head, title, width, number, cell: (row) => cell(values[row]), key: (row) => key(values[row]) };
}

function stateCell(dead) {
  return dead ? "dead" : h("span.quiet", "–");
}

// The measures with their own filter, and the token and text columns that the search box looks through.
function filteredMeasures(columns) {
  const filtered = allMeasures().filter(({ name, filtered: isFiltered }) => isFiltered && columns[name]);
  const words = measuresIn("layer").filter((measure) => isWord(measure) && columns[measure.name]);
  return { choices: filtered.filter(isChoice), ranges: filtered.filter(isRange), words };
}

const percent = ({ kind }) => (kind === "share" ? 100 : 1);

// "Top token or pattern": a token by its label, a text by its name.
function wordsLabel(words) {
  const names = words.map(({ kind, label, name }) => (kind === "token" ? label.toLowerCase() : name.replaceAll("_", " ")));
  const last = names.pop();
  const label = names.length ? `${names.join(", ")} or ${last}` : last;
  return `${label[0].toUpperCase()}${label.slice(1)} contains`;
}

// The form above the table. On every change the URL is updated and `changed` is called with a test of one row.
function layerFilters({ columns }, changed) {
  const fields = new Map();
  const field = (name, input) => {
    fields.set(name, input);
    input.name = name;
    input.value = urlParameter(name);
    return input;
  };
  const { choices, ranges, words } = filteredMeasures(columns);
  const choice = (name, label, options) => {
    const select = field(name, h("select", Object.entries(options).map(([value, text]) => h("option", { value }, text))));
    select.value = urlParameter(name);
    if (select.selectedIndex < 0) select.value = ""; // the URL has none of the options
    return h("label", label, select);
  };
  const range = ({ name, label, kind }) => {
    const legend = kind === "share" ? `${label}, %` : label;
    const end = (which, hint) => field(`${name}_${which}`,
      h("input.short", { type: "number", step: "any", placeholder: hint, "aria-label": `${legend}, ${hint}` }));
    return h("fieldset", h("legend", legend), end("min", "from"), " – ", end("max", "to"));
  };
  const box = field("q", h("input", { type: "search", spellcheck: "false" }));
  const parts = [
    words.length ? h("label.grow", wordsLabel(words), box) : null,
    choice("state", "State", STATE.options),
    choices.map((measure) => choice(measure.name, measure.label, choiceOptions(measure))),
    ranges.map(range),
  ];
  const apply = () => {
    const values = Object.fromEntries([...fields].map(([name, input]) => [name, input.value.trim()]));
    updateUrl(values);
    changed(rowTest(columns, values));
  };
  const clear = () => {
    for (const input of fields.values()) input.value = "";
    apply();
  };
  const onsubmit = (event) => event.preventDefault();
  const element = h("form.filters", { role: "search", "aria-label": "Filter the memories", oninput: apply, onsubmit }, parts,
    h("button", { type: "button", onclick: clear }, "Clear"));
  return { element, apply };
}

function choiceOptions(measure) {
  return Object.fromEntries([["", "any"], ...measureOptions(measure).map((option) => [option, option])]);
}

function rowTest(columns, filters) {
  const tests = [];
  const { choices, ranges, words } = filteredMeasures(columns);
  const text = filters.q.toLowerCase();
  if (text && words.length) tests.push((row) => words.some(({ name }) => columns[name][row]?.toLowerCase().includes(text)));
  if (filters.state) tests.push((row) => columns[STATE.measure][row] === (filters.state === "dead"));
  for (const { name, kind } of choices) {
    const chosen = (value) => (kind === "answer" ? value === (filters[name] === "yes") : (value ?? "none") === filters[name]);
    if (filters[name]) tests.push((row) => chosen(columns[name][row]));
  }
  for (const measure of ranges) {
    const { name } = measure;
    // 12 of 50 is stored as a little less than 24 %: compare six digits.
    const number = (row) => (columns[name][row] === null ? NaN : Number((percent(measure) * columns[name][row]).toPrecision(6)));
    if (filters[`${name}_min`]) tests.push((row) => number(row) >= Number(filters[`${name}_min`]));
    if (filters[`${name}_max`]) tests.push((row) => number(row) <= Number(filters[`${name}_max`]));
  }
  return (row) => tests.every((test) => test(row));
}
