// What a memory's triggers share, as the machine, a language model or a person says.
import { h, real } from "./dom.js";
import { countOf, cutText, inLocation, keepInLocation } from "./widgets.js";

// Pointing at a pattern highlights its triggers; pressing it shows these alone.
export function memoryPatterns({ patterns }, examples) {
  if (!patterns) return null;
  if (!patterns.length) return h("p.quiet", "No pattern was found.");
  const buttons = [];
  const press = (index) => {
    buttons.forEach((button, place) => button.setAttribute("aria-pressed", String(place === index)));
    examples.only(index === null ? null : patterns[index].covers);
    keepInLocation({ pattern: index === null ? null : index + 1 });
  };
  const made = patterns.map((pattern, index) => {
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
  const kept = Number(inLocation("pattern")) - 1;
  if (Number.isInteger(kept) && buttons[kept]) press(kept);
  return [byAnnotator(patterns, made), h("p.quiet.small", "Press a pattern to see its triggers alone.")];
}

function byAnnotator(patterns, made) {
  const names = [...new Set(patterns.map((pattern) => pattern.annotator))];
  return names.map((name) => [h("h3", h("bdi", name === "machine" ? "By the machine" : `By ${cutText(name, 80)}`)),
    h("ul.patterns", made.filter((_, index) => patterns[index].annotator === name))]);
}

function patternButton({ kind, description, covers, p_value: chance, detection }) {
  const facts = [kind, covers.length ? `covers ${countOf(covers.length, "trigger")}` : "covers nothing"];
  if (chance !== null && chance !== undefined) facts.push(`p ${chance < 1e-12 ? "< 1e-12" : real(chance, 2)}`);
  if (detection !== null && detection !== undefined) facts.push(`detection ${real(detection, 2)}`);
  const said = h("span.quiet.small", facts.join(" · "));
  return h("button.pattern", { type: "button", "aria-pressed": "false" }, h("bdi", cutText(description, 300)), said);
}
