// Elements shared by the parts of the prompt page.
import { h, real, visibleToken, token } from "./dom.js";
import { memoryLink } from "./links.js";

// A table's head. `numbers` lists the heads of number columns; `classes` maps heads to CSS classes.
export function headRow(heads, numbers = [], classes = {}) {
  const kind = (head) => ["th", numbers.includes(head) && "number", classes[head]].filter(Boolean).join(".");
  return h("thead", h("tr", heads.map((head) => h(kind(head), { scope: "col" }, head))));
}

export function tinyButton(text, label, onclick) {
  return h("button.tiny", { type: "button", title: label, "aria-label": label, onclick }, text);
}

// A memory with its coefficient, if it has one: L3.17 −22 ×
export function weightedMemory(memory, coefficient) {
  const weight = coefficient === null ? null : h("span.soft", ` ${real(coefficient, 2)} ×`);
  return h("span.weighted", h("a", { href: memoryLink(memory) }, memory), weight);
}

// The tokens that a memory promotes at its current coefficient, cut to one line; all of them in the tooltip.
export function promoted(promotes, coefficient) {
  const why = coefficient < 0 ? " (those that its value suppresses, since the coefficient is negative)" : "";
  const title = `promotes ${promotes.map(visibleToken).join("  ")}${why}`;
  return h("span.promoting", { title }, promotes.map((text) => [token(text), " "]));
}

// A push or an effect as a bar from the middle: to the right if positive, to the left if negative.
export function pushBar(push, largest) {
  const side = push >= 0 ? "toward-a" : "toward-b";
  return h("span.push", h("span.push-track", h(`span.push-bar.${side}`, { style: { "--part": Math.abs(push ?? 0) / largest } })),
    h("span.push-number", `${push > 0 ? "+" : ""}${real(push, 2)}`));
}

// Replaces ␣ at both ends of a token by spaces.
export function realSpaces(text) {
  return text.replace(/^␣+|␣+$/g, (marks) => " ".repeat(marks.length));
}
