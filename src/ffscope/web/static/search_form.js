// The fields of the search form, named as the parameters of the server and the URL.
import { h } from "./dom.js";
import { allMeasures, isChoice, isRange, measureOptions } from "./measures.js";

const TEXT_FIELDS = {
  trigger: ["A trigger contains", "case does not matter", "grow"],
  promotes: ["The value promotes", "a token, such as ␣of", "grow"],
  pattern: ["A pattern contains", "part of its description", "grow"],
  layers: ["Layers", "0,3-5", "middle"],
};
const LOOSE = "ignore space and case"; // for the promoted token
const rangeMeasures = () => allMeasures().filter(isRange);
const choiceMeasures = () => allMeasures().filter(isChoice).reverse(); // later stages first
const plainFields = () => [...Object.keys(TEXT_FIELDS), ...choiceMeasures().map(({ name }) => name)];

export function searchParameters() {
  return [...plainFields(), "loose", ...rangeMeasures().map(({ name }) => name), "sort"];
}

// `submit` is called with {name: value} of all fields, "" for empty ones.
export function searchForm(submit) {
  const texts = Object.entries(TEXT_FIELDS).map(([name, [label, placeholder, size]]) =>
    h(`label.${size}`, label, h("input", { name, type: "search", placeholder, spellcheck: "false", maxLength: 500 })));
  const choices = choiceMeasures().map((measure) =>
    h("label", measure.label, h("select", { name: measure.name },
      ["", ...measureOptions(measure)].map((value) => h("option", { value }, value || "any")))));
  const loose = h("label.check", h("input", { name: "loose", type: "checkbox" }), LOOSE);
  texts.splice(Object.keys(TEXT_FIELDS).indexOf("promotes") + 1, 0, loose);
  const note = h("p.quiet.small.below", "Only the 20 top tokens of each value are searched. Type a token as the pages spell it: ",
    h("bdi.token", "␣of"), " has a leading space; a plain space works too.");
  const clear = h("button", { type: "button", onclick: () => clearForm(form) }, "Clear");
  const form = h("form.filters", { role: "search", "aria-label": "Search memories" }, texts, choices, note,
    h("details", h("summary", "Filter by measures"), h("div.filters", rangeMeasures().map(rangeField))),
    h("div.buttons", h("button.main", { type: "submit" }, "Search"), clear));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit(formValues(form));
  });
  return form;
}

function rangeField({ name, label, help: title, unit }) {
  const end = (which, hint) => h("input.short", {
    name: `${name}.${which}`, type: "number", step: "any", placeholder: hint, "aria-label": `${label}, ${hint}`,
  });
  const legend = h("legend", { title }, label, unit && h("span.small", ` (${unit})`));
  return h("fieldset", legend, end("low", "from"), " – ", end("high", "to"));
}

function clearForm(form) {
  for (const field of form.querySelectorAll("input, select")) field.value = "";
  form.elements.loose.checked = false;
  form.elements.trigger.focus();
}

function formValues(form) {
  const value = (name) => form.elements[name].value.trim();
  const values = Object.fromEntries(plainFields().map((name) => [name, value(name)]));
  for (const name of ["trigger", "promotes"]) values[name] = form.elements[name].value; // spaces matter here
  values.loose = form.elements.loose.checked ? "yes" : "";
  for (const { name } of rangeMeasures()) {
    const [low, high] = [value(`${name}.low`), value(`${name}.high`)];
    values[name] = low || high ? `${low}..${high}` : "";
  }
  return values;
}

export function fillSearchForm(form, query) {
  for (const name of plainFields()) form.elements[name].value = query[name];
  form.elements.loose.checked = query.loose === "yes";
  // The URL may have an invalid choice, which the server reports.
  for (const select of form.querySelectorAll("select")) if (select.selectedIndex < 0) select.value = "";
  for (const { name } of rangeMeasures()) {
    const [low, high = ""] = query[name].split("..");
    form.elements[`${name}.low`].value = low;
    form.elements[`${name}.high`].value = high;
  }
  if (rangeMeasures().some(({ name }) => query[name])) form.querySelector("details").open = true;
}
