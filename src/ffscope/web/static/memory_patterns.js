// The patterns in a memory's triggers, by program, language model or person.
import { h, real } from "./dom.js";
import { term } from "./terms.js";
import { countOf, cutText, urlParameter, updateUrl } from "./widgets.js";

// Pointing at a pattern highlights its triggers; pressing it shows only these.
export function memoryPatterns({ patterns }, examples) {
  if (!patterns) return null;
  if (!patterns.length) return h("p.quiet", "No pattern was found.");
  const buttons = [];
  const press = (index) => {
    buttons.forEach((button, place) => button.setAttribute("aria-pressed", String(place === index)));
    examples.only(index === null ? null : patterns[index].covers);
    updateUrl({ pattern: index === null ? null : index + 1 });
  };
  const items = patterns.map((pattern, index) => {
    const button = patternButton(pattern);
    const on = () => examples.highlight(pattern.covers);
    const off = () => examples.highlight([]);
    button.addEventListener("pointerenter", on);
    button.addEventListener("pointerleave", off);
    button.addEventListener("focus", on);
    button.addEventListener("blur", off);
    button.addEventListener("click", () => press(button.getAttribute("aria-pressed") === "true" ? null : index));
    buttons.push(button);
    return h("li", button);
  });
  const pressed = Number(urlParameter("pattern")) - 1;
  if (Number.isInteger(pressed) && buttons[pressed]) press(pressed);
  return [byAnnotator(patterns, items), h("p.quiet.small", "Press a ", term("pattern"), " to see only its triggers.")];
}

function byAnnotator(patterns, items) {
  const names = [...new Set(patterns.map((pattern) => pattern.annotator))];
  return names.map((name) => [h("h3", h("bdi", name === "machine" ? "Found automatically" : `By ${cutText(name, 80)}`)),
    h("ul.patterns", items.filter((_, index) => patterns[index].annotator === name))]);
}

function patternButton({ kind, description, covers, p_value: chance, detection }) {
  const facts = [kind, covers.length ? `covers ${countOf(covers.length, "trigger")}` : "covers no trigger"];
  if (chance !== null && chance !== undefined) facts.push(`p ${chance < 1e-12 ? "< 1e-12" : real(chance, 2)}`);
  if (detection !== null && detection !== undefined) facts.push(`detection ${real(detection, 2)}`);
  const details = h("span.quiet.small", facts.join(" · "));
  return h("button.pattern", { type: "button", "aria-pressed": "false" }, h("bdi", cutText(description, 300)), details);
}
