// All that is chosen on the prompt page is in its link, so that a link opened elsewhere does the same again.
import { withQuery } from "./links.js";

const PROMPT_WORDS = ["text", "off", "scale", "set", "position", "of", "colour", "lens", "a", "b", "new_tokens"];

export function readPromptLink() {
  const query = new URLSearchParams(location.search);
  return Object.fromEntries(PROMPT_WORDS.map((name) => [name, query.get(name) ?? ""]));
}

export function promptAddress(link) {
  return withQuery("/prompt", link);
}

// What the server needs to know of a link to run the text: not the colours, nor what the other parts ask.
export function promptQuestion({ text, off, scale, set, position, of, lens }) {
  return { text, off, scale, set, position, of, lens };
}

// What the grid depends on: choosing another position leaves it as it is.
export function gridQuestion({ text, off, scale, set, of, lens }) {
  return JSON.stringify([text, off, scale, set, of, lens]);
}

const INTERVENTION = /^\s*[Ll]?(\d{1,6})[.](\d{1,9})\s*(?::\s*(\S+))?\s*$/;

// A link's interventions as a list, in its order. What is not understood is kept as it is: the server says what is wrong with it,
// and it can be taken away.
export function listInterventions(link) {
  return ["off", "scale", "set"].flatMap((change) => link[change].split(",").filter((term) => term.trim()).map((term) => {
    const found = INTERVENTION.exec(term);
    const sound = found !== null && (found[3] === undefined) === (change === "off");
    const memory = sound ? `L${Number(found[1])}.${Number(found[2])}` : term;
    return { memory, change, number: sound ? found[3] ?? null : null };
  }));
}

export function linkInterventions(list) {
  const spelt = (change) => list.filter((one) => one.change === change)
    .map(({ memory, number }) => (number === null ? memory : `${memory}:${number}`)).join(",");
  return { off: spelt("off"), scale: spelt("scale"), set: spelt("set") };
}
