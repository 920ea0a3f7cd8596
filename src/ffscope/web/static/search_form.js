// The fields of the search, by the names that the server and the location have for them.
import { h } from "./dom.js";
import { allMeasures, isChoice, isRange, measureOptions } from "./measures.js";

const TEXT_FIELDS = {
  trigger: ["A trigger contains", "case does not matter", "grow"],
  promotes: ["The value promotes", "a token, such as ␣of", "grow"],
  pattern: ["A pattern contains", "part of its description", "grow"],
  layers: ["Layers", "0,3-5", "middle"],
};
const LOOSE = "ignore space and case"; // of the promoted token
const rangeMeasures = () => allMeasures().filter(isRange);
const choiceMeasures = () => allMeasures().filter(isChoice).reverse(); // those of the last stages first
const plainFields = () => [...Object.keys(TEXT_FIELDS), ...choiceMeasures().map(({ name }) => name)];

export function searchWords() {
  return [...plainFields(), "loose", ...rangeMeasures().map(({ name }) => name), "sort"];
}

// `submit` is given {name: value} of every field, "" where it is empty.
export function searchForm(submit) {
  const texts = Object.entries(TEXT_FIELDS).map(([name, [word, placeholder, size]]) =>
    h(`label.${size}`, word, h("input", { name, type: "search", placeholder, spellcheck: "false", maxLength: 500 })));
  const choices = choiceMeasures().map((measure) =>
    h("label", measure.label, h("select", { name: measure.name },
      ["", ...measureOptions(measure)].map((value) => h("option", { value }, value || "any")))));
  const loose = h("label.check", h("input", { name: "loose", type: "checkbox" }), LOOSE);
  texts.splice(Object.keys(TEXT_FIELDS).indexOf("promotes") + 1, 0, loose);
  const note = h("p.quiet.small.below", "Only the 20 top tokens of every value are searched. Type a token as pages spell it: ",
    h("bdi.token", "␣of"), " has a leading space, for which a plain space works too.");
  const clear = h("button", { type: "button", onclick: () => clearForm(form) }, "Clear");
  const form = h("form.filters", { role: "search", "aria-label": "Search memories" }, texts, choices, note,
    h("details", h("summary", "By numbers"), h("div.filters", rangeMeasures().map(rangeField))),
    h("div.buttons", h("button.main", { type: "submit" }, "Search"), clear));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit(saidInForm(form));
  });
  return form;
}

function rangeField({ name, label: word, unit }) {
  const end = (which, said) => {
    const label = `${word}, ${said}`;
    return h("input.short", { name: `${name}.${which}`, type: "number", step: "any", placeholder: said, "aria-label": label });
  };
  return h("fieldset", h("legend", word, unit && h("span.small", ` (${unit})`)), end("low", "from"), " – ", end("high", "to"));
}

function clearForm(form) {
  for (const field of form.querySelectorAll("input, select")) field.value = "";
  form.elements.loose.checked = false;
  form.elements.trigger.focus();
}

function saidInForm(form) {
  const value = (name) => form.elements[name].value.trim();
  const said = Object.fromEntries(plainFields().map((name) => [name, value(name)]));
  for (const name of ["trigger", "promotes"]) said[name] = form.elements[name].value; // a space is searched for too
  said.loose = form.elements.loose.checked ? "yes" : "";
  for (const { name } of rangeMeasures()) {
    const [low, high] = [value(`${name}.low`), value(`${name}.high`)];
    said[name] = low || high ? `${low}..${high}` : "";
  }
  return said;
}

export function fillSearchForm(form, asked) {
  for (const name of plainFields()) form.elements[name].value = asked[name];
  form.elements.loose.checked = asked.loose === "yes";
  // A link may name none of the choices; the server says so.
  for (const select of form.querySelectorAll("select")) if (select.selectedIndex < 0) select.value = "";
  for (const { name } of rangeMeasures()) {
    const [low, high = ""] = asked[name].split("..");
    form.elements[`${name}.low`].value = low;
    form.elements[`${name}.high`].value = high;
  }
  if (rangeMeasures().some(({ name }) => asked[name])) form.querySelector("details").open = true;
}
