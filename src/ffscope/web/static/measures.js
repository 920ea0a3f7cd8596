// The measures of a memory, as the stages declare them: which ones a page shows, their labels, and how values are formatted.
import { aboutStudy } from "./about.js";
import { h, real, share, whole } from "./dom.js";
import { agreesMark, oneLine, tokenCell } from "./widgets.js";

const RANGE_KINDS = ["real", "share", "count"];
const CHOICE_KINDS = ["answer", "choice"];
const WORD_KINDS = ["token", "text"];
const FORMATTERS = {
  real: (number) => real(number),
  share: (part, { digits }) => share(part, digits ?? undefined),
  count: (number) => whole(number),
  answer: (answer) => agreesMark(answer),
  choice: (choice) => choice ?? h("span.quiet", "–"),
  token: (text) => tokenCell(text),
  text: (text) => oneLine(text),
};

export const isRange = ({ kind }) => RANGE_KINDS.includes(kind);
export const isChoice = ({ kind }) => CHOICE_KINDS.includes(kind);
export const isWord = ({ kind }) => WORD_KINDS.includes(kind);

export function allMeasures() {
  return aboutStudy().measures;
}

// The measures with a column in a table: "layer" or "search".
export function measuresIn(place) {
  return allMeasures().filter(({ shown }) => shown.includes(place));
}

export function measureHelp(name) {
  return allMeasures().find((measure) => measure.name === name).help;
}

// What each column means, for keyboard and touch as well: the heads themselves only have tooltips.
export function columnMeanings(measures) {
  const rows = measures.filter(({ help }) => help);
  return rows.length ? h("details.meanings", h("summary", "What the columns mean"),
    h("dl", rows.map((measure) => [h("dt", measureHead(measure)), h("dd", measure.help)]))) : null;
}

export function measureHead({ short, label }) {
  return short || label;
}

export function measureCell(measure, value) {
  return FORMATTERS[measure.kind](value, measure);
}

// The options of a measure that is yes or no, or a choice.
export function measureOptions({ kind, choices }) {
  return kind === "answer" ? ["yes", "no"] : choices;
}
