// The measures of a memory, as the stages declare them: which of them a page shows, under which words, and how each is said.
import { aboutStudy } from "./about.js";
import { h, real, share, whole } from "./dom.js";
import { agreesMark, oneLine, tokenCell } from "./widgets.js";

const RANGE_KINDS = ["real", "share", "count"];
const CHOICE_KINDS = ["answer", "choice"];
const WORD_KINDS = ["token", "text"];
const SAID_AS = {
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

// Those with a column in a place: "layer" or "search".
export function measuresIn(place) {
  return allMeasures().filter(({ shown }) => shown.includes(place));
}

export function measureHelp(name) {
  return allMeasures().find((measure) => measure.name === name).help;
}

export function measureHead({ short, label }) {
  return short || label;
}

export function measureCell(measure, value) {
  return SAID_AS[measure.kind](value, measure);
}

// What may be chosen of a yes or no, or of a choice.
export function measureOptions({ kind, choices }) {
  return kind === "answer" ? ["yes", "no"] : choices;
}
