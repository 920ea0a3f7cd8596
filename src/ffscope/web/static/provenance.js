// How a study was made: command, settings, stages and versions.
import { bdi, h, real, visibleText, whole } from "./dom.js";
import { copyButton, cutText } from "./widgets.js";

export function provenanceSection({ command, settings, stages, versions, corpus, model }) {
  const table = (name, facts) => facts && [h("h3", name), h("div.wide", h("table.plain.facts", h("tbody", factRows(facts))))];
  const runs = Object.fromEntries(Object.entries(stages ?? {}).map(([name, stage]) => [name, stageWords(stage)]));
  return h("details.provenance", h("summary", h("h2", "How this study was made")),
    command && h("div.command", h("code", visibleText(command)), copyButton(command)),
    h("div.columns", h("div", table("Model", model), table("Corpus", corpus)), h("div", table("Settings", settings)),
      h("div", table("Stages", runs), table("Versions", versions))));
}

function stageWords({ done, seconds, tokens_per_second: speed, why }) {
  if (why) return why;
  if (!done) return "not run";
  if (seconds === null || seconds === undefined) return "done";
  const took = seconds < 90 ? `${real(seconds)} s` : `${whole(Math.round(seconds / 60))} min`;
  return speed ? `${took}, ${whole(speed)} tokens per second` : took;
}

function factRows(facts) {
  return Object.entries(facts).map(([name, value]) =>
    h("tr", h("th", { scope: "row" }, bdi(name)), h("td", h("bdi", cutText(factWords(value), 160)))));
}

function factWords(value) {
  if (value === null || value === undefined || value === "") return "–";
  if (typeof value === "number") return Number.isInteger(value) ? whole(value) : real(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value)) {
    const allEqual = value.length > 2 && value.every((element) => element === value[0]);
    if (allEqual) return `${factWords(value[0])} each`;
    return value.length ? value.map(factWords).join(", ") : "–";
  }
  if (typeof value === "object") return Object.entries(value).map(([name, fact]) => `${name} ${factWords(fact)}`).join(", ") || "–";
  return String(value);
}
