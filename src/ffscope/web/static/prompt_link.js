// The URL captures the state of the prompt page. The server says which parameters there are, and which may be repeated: their
// values are joined.
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

// The parameters that determine the model's run.
export function runQuestion({ text, zero, scale, set, positions }) {
  return { text, zero, scale, set, positions };
}

export function promptQuestion(link) {
  const { position, of, lens } = link;
  return { ...runQuestion(link), position, of, lens };
}

// The parameters that determine the grid; the position does not.
export function gridQuestion(link) {
  return JSON.stringify([runQuestion(link), link.of, link.lens]);
}

const INTERVENTION = /^\s*[Ll]?(\d{1,9})(?:[.](\d{1,9}))?\s*(?::\s*(\S+))?\s*$/;

// The interventions in the URL as a list. Invalid ones are kept as they are: the server reports them, and the user can remove them.
export function listInterventions(link) {
  return CHANGE_KINDS.flatMap((change) => link[change].split(",").filter((term) => term.trim()).map((term) => {
    const match = INTERVENTION.exec(term);
    const isValid = match !== null && (match[3] === undefined) === (change === "zero");
    return { name: isValid ? memoryOrLayer(match[1], match[2]) : term, change, number: isValid ? match[3] ?? null : null };
  }));
}

// L3.17, or L3 for a whole layer.
export function memoryOrLayer(layer, memory) {
  return memory === undefined ? `L${Number(layer)}` : `L${Number(layer)}.${Number(memory)}`;
}

export function linkInterventions(list) {
  const terms = (change) => list.filter((intervention) => intervention.change === change)
    .map(({ name, number }) => (number === null ? name : `${name}:${number}`)).join(",");
  return Object.fromEntries(CHANGE_KINDS.map((change) => [change, terms(change)]));
}
