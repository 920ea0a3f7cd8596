// The study at a glance: what was studied, findings, figures, layers.
import { bdi, h, real, replace, visibleText, share, token, whole } from "./dom.js";
import { drawFigures } from "./figures.js";
import { allMeasures } from "./measures.js";
import { provenanceSection } from "./provenance.js";
import { term, withTerms } from "./terms.js";
import { countOf, cutText, layerName, memoryName, missingStages, plainTable } from "./widgets.js";
import { prefixTokens } from "./tokens.js";

export async function overviewPage(place, data, about) {
  document.title = `${visibleText(data.name)} – ffscope`;
  const figures = h("div.figures");
  replace(place,
    h("h1", bdi(cutText(data.name, 200))),
    h("p.quiet", studiedLine(data)),
    data.older && h("p.note", "A stage has been run since the figures were drawn. To update them, run ",
      h("code", visibleText(`ffscope report ${about.folder}`)), "."),
    findingsTable(data.findings),
    missingStages(data.missing),
    data.figures?.length
      ? [h("h2", "Figures"), h("p.quiet", "Numbered as in the paper. Click a layer in a figure to open its page."), figures]
      : null,
    h("h2", "Layers"), layersTable(data.layers),
    predictiveValues(data.predictive),
    provenanceSection(data));
  await drawFigures(figures, data.figures ?? []);
}

// Words of the glossary that findings use; only the first use on the page is explained.
const FINDING_TERMS = {
  pattern: ["patterns?"], trigger: ["triggers?"], coefficient: ["coefficients?"], value: ["values?"], agreement: ["agreement"],
  "top token": ["top tokens?"], memory: ["memory", "memories"], residual: ["residual"], update: ["updates?"], output: ["outputs?"],
  prefix: ["prefix", "prefixes"], example: ["examples?"],
};

function findingsTable(findings) {
  if (!findings?.length) return null;
  const text = (words) => h("bdi", withTerms(visibleText(words), FINDING_TERMS));
  const rows = findings.map(({ finding, model, paper, reading }) =>
    h("tr", h("th", { scope: "row" }, text(finding)), h("td", bdi(model)), h("td", bdi(paper)), h("td", text(reading))));
  return [h("h2", "In short"), h("p.quiet", "The main results, compared with those of Geva et al. (2021), “the paper”. ",
    "This model’s layers count from 0, the paper’s from 1."),
    plainTable("In short", ["Finding", "This model", "The paper", "Reading"], h("tbody", rows), { kind: ".findings" })];
}

function studiedLine({ model, corpus, settings }) {
  const memories = model.memories.reduce((sum, count) => sum + count, 0);
  const { searched } = corpus;
  const ended = settings.minutes && searched.sentences < corpus.sentences - corpus.held_out.sentences;
  return [
    `${whole(memories)} `, term("memory", "memories"), ` in ${countOf(model.layers, "layer")} of `,
    bdi(cutText(model.source ?? model.family, 120)), `, searched over ${whole(searched.prefixes)} `, term("prefix", "prefixes"),
    ` of ${countOf(searched.sentences, "sentence")} from `, bdi(cutText(corpus.source, 120)),
    ended ? ` (--minutes ${settings.minutes} ended the search early)` : "",
    settings?.top ? [`; at most ${whole(settings.top)} `, term("trigger", "triggers"), " per memory."] : ".",
  ];
}

// Name, column head, format and meaning.
const COUNT_COLUMNS = [
  ["memories", "Memories", whole, null],
  ["searched", "Searched", whole, "Memories whose triggers were searched for"],
  ["dead", "Dead", whole, "Memories that fired on no prefix"],
];
const MEAN_FORMATS = {
  share: (part) => share(part), answer: (part) => share(part), real: (number) => real(number),
  count: (number) => (number === null ? "–" : number.toFixed(1)),
};

// The means per layer that measures declare, shares first.
function meanColumns() {
  const isShare = ({ kind }) => kind === "share" || kind === "answer";
  const means = allMeasures().filter(({ mean }) => mean);
  return [...means.filter(isShare), ...means.filter((measure) => !isShare(measure))]
    .map(({ kind, mean }) => [mean.name, mean.label, MEAN_FORMATS[kind], mean.help]);
}

function layersTable(layers) {
  const columns = [...COUNT_COLUMNS, ...meanColumns()];
  const available = columns.filter(([name]) => layers.some((layer) => layer[name] !== null && layer[name] !== undefined));
  const heads = ["Layer", ...available.map(([, label, , title]) => h("span", { title }, label))];
  const rows = layers.map((layer) => h("tr", h("th", { scope: "row" }, layerName(layer.layer)),
    available.map(([name, , format]) => h("td.number", format(layer[name] ?? null)))));
  const meanings = available.filter(([, , , help]) => help).map(([, label, , help]) => [h("dt", label), h("dd", help)]);
  return [plainTable("Layers", heads, h("tbody", rows), { numbers: available.map((_, place) => place + 1) }),
    h("details.meanings", h("summary", "What the columns mean"), h("dl", meanings))];
}

function predictiveValues(values) {
  if (!values?.length) return null;
  const rows = values.map((value) => {
    const trigger = value.trigger
      ? prefixTokens(value.trigger, { before: 14, after: 6, maximum: value.trigger.coefficient })
      : h("span.quiet", "dead: no trigger");
    const precision = h("td.number", { title: `of ${countOf(value.triggers, "trigger")}` }, share(value.precision, 0));
    return h("tr", h("th", { scope: "row" }, memoryName(value.memory)), h("td", token(value.prediction)),
      h("td.number", real(value.max_prob)), precision, h("td.prefixes", trigger));
  });
  const heads = ["Memory", "Top token of the value", "Probability", "Precision", "Trigger of the key"];
  return [
    h("h2", "Predictive values"),
    h("p.quiet", "The ", term("value", "values"), " with the highest probability for a single token, each with a trigger of its ",
      term("key"), ". Precision: the share of the memory’s triggers that are followed by this token."),
    plainTable("Predictive values", heads, h("tbody", rows), { numbers: [2, 3] }),
  ];
}
