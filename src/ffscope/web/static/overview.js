// The whole study at a glance: what was studied, what was found, its figures, its layers.
import { bdi, h, real, replace, visibleText, share, token, whole } from "./dom.js";
import { drawFigures } from "./figures.js";
import { allMeasures } from "./measures.js";
import { provenanceSection } from "./provenance.js";
import { countOf, cutText, layerName, memoryName, missingStages, plainTable } from "./widgets.js";
import { prefixTokens } from "./tokens.js";

export async function overviewPage(place, data, about) {
  document.title = `${visibleText(data.name)} – ffscope`;
  const figures = h("div.figures");
  replace(place,
    h("h1", bdi(cutText(data.name, 200))),
    h("p.quiet", studiedLine(data)),
    data.older && h("p.note", "The figures are older than the study. Run ", h("code", visibleText(`ffscope report ${about.folder}`)), "."),
    data.telling?.length ? [h("h2", "In short"), h("ul.telling", data.telling.map((said) => h("li", bdi(said))))] : null,
    missingStages(data.missing),
    data.figures?.length
      ? [h("h2", "Figures"), h("p.quiet", "Numbered as in the paper. Click a layer’s mark to open that layer."), figures]
      : null,
    h("h2", "Layers"), layersTable(data.layers),
    predictiveValues(data.predictive),
    provenanceSection(data));
  await drawFigures(figures, data.figures ?? []);
}

function studiedLine({ model, corpus, settings }) {
  const memories = model.memories.reduce((sum, count) => sum + count, 0);
  const { searched } = corpus;
  const ended = settings.minutes && searched.sentences < corpus.sentences - corpus.held_out.sentences;
  return [
    `${whole(memories)} memories in ${countOf(model.layers, "layer")} of `, bdi(cutText(model.source ?? model.family, 120)),
    `, searched over ${whole(searched.prefixes)} prefixes of ${countOf(searched.sentences, "sentence")} from `,
    bdi(cutText(corpus.source, 120)),
    ended ? `, where --minutes ${settings.minutes} ended the search` : "",
    settings?.top ? `; at most ${countOf(settings.top, "trigger")} a memory.` : ".",
  ];
}

// Name, head, how a number is said, what it means.
const COUNT_COLUMNS = [
  ["memories", "Memories", whole, null],
  ["searched", "Searched", whole, "Memories whose triggers were searched"],
  ["dead", "Dead", whole, "Memories that fired on no prefix"],
];
const MEANS_SAID = {
  share: (part) => share(part), answer: (part) => share(part), real: (number) => real(number),
  count: (number) => (number === null ? "–" : number.toFixed(1)),
};

// The means over a layer that measures declare, the shares beside each other.
function meanColumns() {
  const isShare = ({ kind }) => kind === "share" || kind === "answer";
  const means = allMeasures().filter(({ mean }) => mean);
  return [...means.filter(isShare), ...means.filter((measure) => !isShare(measure))]
    .map(({ kind, mean }) => [mean.name, mean.label, MEANS_SAID[kind], mean.help]);
}

function layersTable(layers) {
  const columns = [...COUNT_COLUMNS, ...meanColumns()];
  const known = columns.filter(([name]) => layers.some((one) => one[name] !== null && one[name] !== undefined));
  const heads = ["Layer", ...known.map(([, word, , title]) => h("span", { title }, word))];
  const rows = layers.map((one) => h("tr", h("th", { scope: "row" }, layerName(one.layer)),
    known.map(([name, , say]) => h("td.number", say(one[name] ?? null)))));
  return plainTable("Layers", heads, h("tbody", rows), { numbers: known.map((_, place) => place + 1) });
}

function predictiveValues(values) {
  if (!values?.length) return null;
  const rows = values.map((one) => {
    const said = one.trigger
      ? prefixTokens(one.trigger, { before: 14, after: 6, maximum: one.trigger.coefficient })
      : h("span.quiet", "dead: no trigger");
    const precision = h("td.number", { title: `of ${countOf(one.triggers, "trigger")}` }, share(one.precision, 0));
    return h("tr", h("th", { scope: "row" }, memoryName(one.memory)), h("td", token(one.prediction)),
      h("td.number", real(one.max_prob)), precision, h("td.prefixes", said));
  });
  const heads = ["Memory", "Value predicts", "Probability", "Precision", "A trigger"];
  return [
    h("h2", "Predictive values"), h("p.quiet", "The values that are surest of one token, each with a trigger of its key."),
    plainTable("Predictive values", heads, h("tbody", rows), { numbers: [2, 3] }),
  ];
}
