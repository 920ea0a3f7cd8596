// The link holds all that is chosen on the prompt page, so that it does the same again wherever it is opened. The server says which
// parameters there are, and which of them may be repeated: those add up.
import { withQuery } from "./links.js";

export const CHANGE_KINDS = ["zero", "scale", "set"];

export function readPromptLink(parameters) {
  const query = new URLSearchParams(location.search);
  const read = (name, repeats) => (repeats ? query.getAll(name).filter((terms) => terms.trim()).join(",") : query.get(name) ?? "");
  return Object.fromEntries(Object.entries(parameters).map(([name, repeats]) => [name, read(name, repeats)]));
}

export function promptAddress(link) {
  return withQuery("/prompt", link);
}

// What a run of the model depends on, whatever is then asked of it.
export function runQuestion({ text, zero, scale, set, positions }) {
  return { text, zero, scale, set, positions };
}

export function promptQuestion(link) {
  const { position, of, lens } = link;
  return { ...runQuestion(link), position, of, lens };
}

// What the grid depends on: choosing another position leaves it as it is.
export function gridQuestion(link) {
  return JSON.stringify([runQuestion(link), link.of, link.lens]);
}

const INTERVENTION = /^\s*[Ll]?(\d{1,9})(?:[.](\d{1,9}))?\s*(?::\s*(\S+))?\s*$/;

// A link's interventions as a list, in its order. What is not understood is kept as it is: the server says what is wrong with it,
// and it can be taken away.
export function listInterventions(link) {
  return CHANGE_KINDS.flatMap((change) => link[change].split(",").filter((term) => term.trim()).map((term) => {
    const match = INTERVENTION.exec(term);
    const sound = match !== null && (match[3] === undefined) === (change === "zero");
    return { name: sound ? memoryOrLayer(match[1], match[2]) : term, change, number: sound ? match[3] ?? null : null };
  }));
}

// L3.17, or L3 for a whole layer.
export function memoryOrLayer(layer, memory) {
  return memory === undefined ? `L${Number(layer)}` : `L${Number(layer)}.${Number(memory)}`;
}

export function linkInterventions(list) {
  const spelt = (change) => list.filter((one) => one.change === change)
    .map(({ name, number }) => (number === null ? name : `${name}:${number}`)).join(",");
  return Object.fromEntries(CHANGE_KINDS.map((change) => [change, spelt(change)]));
}
