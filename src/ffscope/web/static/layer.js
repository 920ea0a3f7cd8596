// All memories of a layer in one table, with filters.
import { h, replace, seen, whole } from "./dom.js";
import { drawFigures } from "./figures.js";
import { exportedMemories, isExport, layerLink } from "./links.js";
import { allMeasures, isChoice, isRange, isWord, measureCell, measureHead, measureOptions, measuresIn } from "./measures.js";
import { panelSections } from "./panels.js";
import { countOf, inLocation, keepInLocation, memoryName, missingStages } from "./widgets.js";
import { VirtualTable } from "./table.js";

export async function layerPage(place, twin, about) {
  document.title = `Layer ${twin.layer} – ${seen(about.name)} – ffscope`;
  const table = new VirtualTable({
    label: "Memories of this layer",
    columns: layerColumns(twin),
    sort: inLocation("sort"),
    onsort: (sort) => keepInLocation({ sort }),
  });
  const status = h("p.quiet.count", { role: "status" });
  const rows = twin.columns.memory.map((memory, index) => index);
  const filters = layerFilters(twin, (fits) => {
    const fitting = rows.filter(fits);
    const all = countOf(rows.length, "memory", "memories");
    replace(status, fitting.length === rows.length ? all : `${whole(fitting.length)} of ${all}`,
      rows.length && !fitting.length ? ": nothing fits all filters. Loosen one, or clear them." : "");
    table.show(fitting);
  });
  const figures = h("div.figures");
  replace(place, h("div.title", h("h1", `Layer ${twin.layer}`), layerNeighbours(twin)), exportedShare(twin),
    missingStages(twin.missing), filters.element, status, table.element,
    twin.figures?.length ? [h("h2", "Figures"), figures] : null, panelSections(twin.panels));
  filters.apply();
  await drawFigures(figures, twin.figures ?? []);
}

function layerNeighbours({ layer, layers }) {
  const to = (number, word) => (number >= 0 && number < layers ? h("a", { href: layerLink(number) }, word) : h("span.quiet", word));
  return h("nav.near", { "aria-label": "Layers" }, to(layer - 1, "Previous layer"), to(layer + 1, "Next layer"));
}

// In an export: how many memories have a page, and why the others have none.
function exportedShare({ layer, columns }) {
  const linked = columns.memory.filter((memory) => exportedMemories().has(`L${layer}.${memory}`)).length;
  if (!isExport() || linked === columns.memory.length) return null;
  const all = countOf(columns.memory.length, "memory", "memories");
  return h("p.quiet", `This export holds pages for ${whole(linked)} of ${all} of this layer; those without a link `,
    "were not exported (", h("code", "ffscope export --memories …"), ").");
}

// A memory is dead or fires: the page has words of its own for it, as everyone asks for it first.
const STATE = { measure: "dead", options: { "": "all", fires: "fires", dead: "dead" } };

function layerColumns({ layer, columns }) {
  const named = { name: "memory", head: "Memory", width: 6.5, key: (row) => columns.memory[row] };
  const known = measuresIn("layer").filter(({ name }) => columns[name]);
  return [{ ...named, cell: (row) => memoryName(`L${layer}.${columns.memory[row]}`) },
    ...known.map((measure) => layerColumn(measure, columns[measure.name]))];
}

function layerColumn(measure, values) {
  const { name, help: title, width } = measure;
  const head = measureHead(measure);
  const cell = name === STATE.measure ? stateCell : (value) => measureCell(measure, value);
  const key = measure.kind === "token" ? (text) => text?.replace(/^[␣ ]+/, "").toLowerCase() ?? null : (value) => value;
  const number = isRange(measure);
  return { name, head, title, width, number, cell: (row) => cell(values[row]), key: (row) => key(values[row]) };
}

function stateCell(dead) {
  return dead ? "dead" : h("span.quiet", "–");
}

// What the filters are: those of the measures that ask for one, and the words of the tokens and texts in sight.
function filteredMeasures(columns) {
  const filtered = allMeasures().filter(({ name, filtered: wanted }) => wanted && columns[name]);
  const words = measuresIn("layer").filter((measure) => isWord(measure) && columns[measure.name]);
  return { choices: filtered.filter(isChoice), ranges: filtered.filter(isRange), words };
}

const percent = ({ kind }) => (kind === "share" ? 100 : 1);

// "Top token or pattern": a token by its label, a text by its name.
function wordsLabel(words) {
  const names = words.map(({ kind, label, name }) => (kind === "token" ? label.toLowerCase() : name.replaceAll("_", " ")));
  const last = names.pop();
  const said = names.length ? `${names.join(", ")} or ${last}` : last;
  return `${said[0].toUpperCase()}${said.slice(1)} contains`;
}

// The form above the table. Every change is kept in the location and told to `changed` as a test of one row.
function layerFilters({ columns }, changed) {
  const fields = new Map();
  const field = (name, input) => {
    fields.set(name, input);
    input.name = name;
    input.value = inLocation(name);
    return input;
  };
  const { choices, ranges, words } = filteredMeasures(columns);
  const choice = (name, label, options) => {
    const select = field(name, h("select", Object.entries(options).map(([value, said]) => h("option", { value }, said))));
    select.value = inLocation(name);
    if (select.selectedIndex < 0) select.value = ""; // a link with a word that is none of these
    return h("label", label, select);
  };
  const range = ({ name, label, kind }) => {
    const legend = kind === "share" ? `${label}, %` : label;
    const end = (which, said) => field(`${name}_${which}`,
      h("input.short", { type: "number", step: "any", placeholder: said, "aria-label": `${legend}, ${said}` }));
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
    const said = Object.fromEntries([...fields].map(([name, input]) => [name, input.value.trim()]));
    keepInLocation(said);
    changed(rowTest(columns, said));
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

function rowTest(columns, said) {
  const tests = [];
  const { choices, ranges, words } = filteredMeasures(columns);
  const text = said.q.toLowerCase();
  if (text && words.length) tests.push((row) => words.some(({ name }) => columns[name][row]?.toLowerCase().includes(text)));
  if (said.state) tests.push((row) => columns[STATE.measure][row] === (said.state === "dead"));
  for (const { name, kind } of choices) {
    const chosen = (value) => (kind === "answer" ? value === (said[name] === "yes") : (value ?? "none") === said[name]);
    if (said[name]) tests.push((row) => chosen(columns[name][row]));
  }
  for (const measure of ranges) {
    const { name } = measure;
    // 12 of 50 is a little less than 24 % as the tables keep it: six digits are what one may ask for.
    const number = (row) => (columns[name][row] === null ? NaN : Number((percent(measure) * columns[name][row]).toPrecision(6)));
    if (said[`${name}_min`]) tests.push((row) => number(row) >= Number(said[`${name}_min`]));
    if (said[`${name}_max`]) tests.push((row) => number(row) <= Number(said[`${name}_max`]));
  }
  return (row) => tests.every((fits) => fits(row));
}
