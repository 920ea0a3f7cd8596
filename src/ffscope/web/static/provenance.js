// How a study was made: the command, the settings, the versions.
import { bdi, h, real, replace, visibleText, whole } from "./dom.js";
import { cutText } from "./widgets.js";

export function provenanceSection({ command, settings, stages, versions, corpus, model }) {
  const table = (name, said) => said && [h("h3", name), h("div.wide", h("table.plain.facts", h("tbody", factRows(said))))];
  const done = Object.fromEntries(Object.entries(stages ?? {}).map(([name, one]) => [name, stageWords(one)]));
  return h("details.made", h("summary", h("h2", "How it was made")),
    command && h("div.command", h("code", visibleText(command)), copyButton(command)),
    h("div.columns", h("div", table("Model", model), table("Corpus", corpus)), h("div", table("Settings", settings)),
      h("div", table("Stages", done), table("Versions", versions))));
}

function stageWords({ done, seconds, tokens_per_second: pace, why }) {
  if (why) return why;
  if (!done) return "not done";
  if (seconds === null || seconds === undefined) return "done";
  const took = seconds < 90 ? `${real(seconds)} s` : `${whole(Math.round(seconds / 60))} min`;
  return pace ? `${took}, ${whole(pace)} tokens a second` : took;
}

function factRows(facts) {
  return Object.entries(facts).map(([name, value]) =>
    h("tr", h("th", { scope: "row" }, bdi(name)), h("td", h("bdi", cutText(factWords(value), 160)))));
}

function factWords(value) {
  if (value === null || value === undefined || value === "") return "–";
  if (typeof value === "number") return Number.isInteger(value) ? whole(value) : real(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value) && value.length > 2 && value.every((one) => one === value[0])) return `${factWords(value[0])} each`;
  if (Array.isArray(value)) return value.length ? value.map(factWords).join(", ") : "–";
  if (typeof value === "object") return Object.entries(value).map(([name, one]) => `${name} ${factWords(one)}`).join(", ") || "–";
  return String(value);
}

function copyButton(text) {
  const button = h("button", { type: "button" }, "Copy");
  const said = h("span.quiet", { role: "status" });
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      replace(said, "Copied.");
    } catch {
      replace(said, "The browser does not allow it: select the command and copy it.");
    }
  });
  return [button, said];
}
