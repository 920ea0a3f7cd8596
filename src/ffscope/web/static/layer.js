// All memories of a layer in one table, with filters.
import { h, real, replace, seen, share, whole } from "./dom.js";
import { drawFigures } from "./figures.js";
import { exportedMemories, isExport, layerLink } from "./links.js";
import {
  AGREEMENT, agreesMark, countOf, inLocation, keepInLocation, memoryName, missingStages, oneLine, tokenCell,
} from "./widgets.js";
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
    twin.figures?.length ? [h("h2", "Figures"), figures] : null);
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

function layerColumns({ layer, columns }) {
  const column = (name, head, width, cell, more = {}) =>
    ({ name, head, width, cell: (row) => cell(columns[name][row]), key: (row) => columns[name][row], ...more });
  const number = (name, head, width, say, title) => column(name, head, width, say, { number: true, title });
  const all = [
    column("memory", "Memory", 6.5, (memory) => memoryName(`L${layer}.${memory}`)),
    number("fires", "Fires", 5, share, "Share of the prefixes seen with a coefficient above 0"),
    column("dead", "Dead", 4, (dead) => (dead ? "dead" : h("span.quiet", "–")), { title: "Fired on no prefix" }),
    number("maximum", "Maximum", 5.8, real, "Highest coefficient"),
    column("top", "Top token", 8, tokenCell, {
      title: "The token that the value ranks highest", key: (row) => columns.top[row]?.replace(/^[␣ ]+/, "").toLowerCase() ?? null,
    }),
    number("max_prob", "Highest prob.", 6, real, "The value’s highest probability"),
    column("agrees", "Agreement", 6.2, agreesMark, { title: AGREEMENT }),
    number("next_rank", "Next rank", 6, whole, "Rank of the next token of the top trigger in the value"),
    number("precision", "Precision", 5.6, (part) => share(part, 0), "Share of triggers whose next token is the value’s top token"),
    number("patterns", "Patterns", 5.2, whole, "Number of patterns"),
    column("kind", "Kind", 5.4, (kind) => kind ?? h("span.quiet", "–")),
    column("pattern", "First pattern", 15, (text) => oneLine(text)),
  ];
  return all.filter(({ name }) => columns[name]);
}

const LAYER_RANGES = { fires: ["Fires, %", 100], max_prob: ["Highest probability", 1], precision: ["Precision, %", 100] };
const LAYER_CHOICES = {
  state: ["State", { "": "all", fires: "fires", dead: "dead" }, "dead"],
  agrees: ["Agreement", { "": "any", yes: "yes", no: "no" }, "agrees"],
  kind: ["Kind", { "": "any", shallow: "shallow", semantic: "semantic", both: "both", none: "none" }, "kind"],
};

// The form above the table. Every change is kept in the location and told to `changed` as a test of one row.
function layerFilters({ columns }, changed) {
  const fields = new Map();
  const field = (name, input) => {
    fields.set(name, input);
    input.name = name;
    input.value = inLocation(name);
    return input;
  };
  const words = field("q", h("input", { type: "search", spellcheck: "false" }));
  const parts = columns.top || columns.pattern ? [h("label.grow", "Top token or pattern contains", words)] : [];
  for (const [name, [word, options, column]] of Object.entries(LAYER_CHOICES)) {
    if (!columns[column]) continue;
    const select = h("select", Object.entries(options).map(([value, said]) => h("option", { value }, said)));
    parts.push(h("label", word, field(name, select)));
    if (select.selectedIndex < 0) select.value = ""; // a link with a word that is none of these
  }
  for (const [name, [word]] of Object.entries(LAYER_RANGES)) {
    if (!columns[name]) continue;
    const end = (which, said) => field(`${name}_${which}`,
      h("input.short", { type: "number", step: "any", placeholder: said, "aria-label": `${word}, ${said}` }));
    parts.push(h("fieldset", h("legend", word), end("min", "from"), " – ", end("max", "to")));
  }
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

function rowTest(columns, said) {
  const tests = [];
  const text = columns.top || columns.pattern ? said.q.toLowerCase() : "";
  const holds = (column, row) => columns[column]?.[row]?.toLowerCase().includes(text);
  if (text) tests.push((row) => holds("top", row) || holds("pattern", row));
  if (said.state) tests.push((row) => columns.dead[row] === (said.state === "dead"));
  if (said.agrees) tests.push((row) => columns.agrees[row] === (said.agrees === "yes"));
  if (said.kind) tests.push((row) => (columns.kind[row] ?? "none") === said.kind);
  for (const [name, [, factor]] of Object.entries(LAYER_RANGES)) {
    // 12 of 50 is a little less than 24 % as the tables keep it: six digits are what one may ask for.
    const number = (row) => (columns[name]?.[row] === null ? NaN : Number((factor * columns[name]?.[row]).toPrecision(6)));
    if (said[`${name}_min`]) tests.push((row) => number(row) >= Number(said[`${name}_min`]));
    if (said[`${name}_max`]) tests.push((row) => number(row) <= Number(said[`${name}_max`]));
  }
  return (row) => tests.every((fits) => fits(row));
}
