// Small things that several parts of the prompt page are made of.
import { h, real, visibleToken, token } from "./dom.js";
import { memoryLink } from "./links.js";

// A table's head; the words that `numbers` lists stand above numbers, and `classes` has a class for some of them.
export function headRow(words, numbers = [], classes = {}) {
  const kind = (word) => ["th", numbers.includes(word) && "number", classes[word]].filter(Boolean).join(".");
  return h("thead", h("tr", words.map((word) => h(kind(word), { scope: "col" }, word))));
}

export function tinyButton(word, label, onclick) {
  return h("button.tiny", { type: "button", title: label, "aria-label": label, onclick }, word);
}

// A number with a true minus sign; the exponent of a very small one keeps its own.
export function signedNumber(number, digits = 2) {
  return real(number, digits).replace(/^-/, "−");
}

// A memory with its coefficient: L3.17 −22 ×
export function weightedMemory(memory, coefficient) {
  return h("span.weighted", h("a", { href: memoryLink(memory) }, memory), h("span.soft", ` ${signedNumber(coefficient)} ×`));
}

// The tokens a memory promotes with its coefficient, short; all of them to a pointer that rests on it.
export function promoted(promotes, coefficient) {
  const why = coefficient < 0 ? ", what its value suppresses: the coefficient is negative" : "";
  const title = `promotes ${promotes.map(visibleToken).join("  ")}${why}`;
  return h("span.promoting", { title }, promotes.map((text) => [token(text), " "]));
}

// A bar from the middle: to the right where it is positive, to the left where it is negative.
export function pushBar(push, most) {
  const side = push >= 0 ? "toward-a" : "toward-b";
  return h("span.push", h("span.push-track", h(`span.push-bar.${side}`, { style: { "--part": Math.abs(push ?? 0) / most } })),
    h("span.push-number", `${push > 0 ? "+" : ""}${signedNumber(push)}`));
}

// The spaces at a token's ends, which are shown as ␣, as spaces again.
export function realSpaces(text) {
  return text.replace(/^␣+|␣+$/g, (marks) => " ".repeat(marks.length));
}
