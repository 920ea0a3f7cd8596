// Small things that several parts of the prompt page are made of.
import { h, seenToken, token } from "./dom.js";

// A table's head; the words that `numbers` lists stand above numbers.
export function headRow(words, numbers = []) {
  return h("thead", h("tr", words.map((word) => h(numbers.includes(word) ? "th.number" : "th", { scope: "col" }, word))));
}

export function tinyButton(word, label, onclick) {
  return h("button.tiny", { type: "button", title: label, "aria-label": label, onclick }, word);
}

// The tokens a memory promotes, short; all of them to a pointer that rests on it.
export function promoted(promotes) {
  const all = promotes.map(seenToken).join("  ");
  return h("span.promoting", { title: `promotes ${all}` }, promotes.map((text) => [token(text), " "]));
}

// Between a token as the tokenizer has it and as a person may type it: a space at its ends is seen as ␣.
export function shownSpaces(text) {
  return text.replace(/^ +| +$/g, (spaces) => "␣".repeat(spaces.length));
}

export function realSpaces(text) {
  return text.replace(/^␣+|␣+$/g, (marks) => " ".repeat(marks.length));
}
