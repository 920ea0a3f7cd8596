// What has changed between two models: by layer, and memory by memory, before and after side by side.
import { bdi, h, real, replace, share, token, visibleText, whole } from "./dom.js";
import { isExport } from "./links.js";
import { getJson, isCancelled } from "./requests.js";
import { term } from "./terms.js";
import { prefixTokens } from "./tokens.js";
import { countOf, cutText, layerName, memoryName, plainTable, updateUrl, urlParameter } from "./widgets.js";

const SORT_LABELS = {
  change: "most changed", correlation: "lowest correlation", value_cosine: "lowest cosine of values",
  key_cosine: "lowest cosine of keys", triggers_kept: "fewest triggers kept", firing: "largest change of the firing rate",
};
const signed = (number) => (number === null ? "–" : number.toFixed(3).replace("-", "−"));
// Name, column head, format and meaning of what a layer has.
const LAYER_COLUMNS = [
  ["memories", "Memories", whole, "Number of memories"],
  ["correlation", "Correlation", signed, "Mean correlation of the coefficients with those of the partner"],
  ["gate_cosine", "Gates", signed, "Mean cosine of the gates and the partners’ gates"],
  ["key_cosine", "Keys", signed, "Mean cosine of the keys and the partners’ keys"],
  ["value_cosine", "Values", signed, "Mean cosine of the values and the partners’ values"],
  ["triggers_kept", "Triggers kept", share, "Mean Jaccard index of the triggers and the partners’ triggers"],
  ["top_kept", "Top tokens kept", share, "Share of values with the top token of the partner’s value"],
  ["change", "Change", real, "Change of what the memories write, relative to what they write"],
  ["universal", "Universal", share, "Share of memories whose correlation with their partner is above the threshold"],
  ["baseline", "By chance", share, "Share whose correlation with the best of as many random directions is above it"],
  ["excess", "In excess", share, "Share whose correlation exceeds that with a random direction by more than the threshold"],
];

export async function diffPage(place, data) {
  document.title = `${visibleText(data.before)} → ${visibleText(data.after)} – ffscope`;
  const list = h("div");
  replace(place,
    h("h1", bdi(cutText(data.before, 120)), " → ", bdi(cutText(data.after, 120))),
    h("p.quiet", matchedLine(data)),
    predictionsLine(data),
    h("h2", "Layers"), diffLayers(data),
    h("h2", "Memories, before and after"), isExport() ? null : orderForm(data, list), list);
  showPairs(list, data);
  if (isExport()) return;
  const sort = urlParameter("sort") || "change";
  const layer = urlParameter("layer");
  if (sort !== "change" || layer !== "") await loadPairs(list, { sort, layer });
}

function matchedLine({ match, match_reason: reason, sampled_tokens: tokens }) {
  const partner = match === "index" ? "the memory of the same number" : "the one whose coefficients have the highest correlation";
  return ["Each ", term("memory"), ` is compared with its partner in the model before: ${partner} (`, bdi(cutText(reason, 200)),
    `). Correlations are over ${countOf(tokens, "token")} of the searched text.`];
}

function predictionsLine({ predictions, why_no_predictions: why }) {
  if (!predictions) return h("p.note", "The predictions were not compared. ", bdi(cutText(why ?? "", 300)));
  const { changed, prefixes, divergence, perplexity_before: before, perplexity_after: after } = predictions;
  return h("p", h("strong", share(changed)), ` of ${whole(prefixes)} predictions on held-out text changed; the Kullback–Leibler `,
    `divergence of the distributions after from those before is ${real(divergence)} nats; perplexity ${real(before, 4)} before, `,
    `${real(after, 4)} after.`);
}

function diffLayers({ layers, overall, threshold }) {
  const available = LAYER_COLUMNS.filter(([name]) => overall[name] !== null);
  const cells = (row) => available.map(([name, , format]) => h("td.number", format(row[name])));
  const rows = layers.map((row) => h("tr", h("th", { scope: "row" }, layerName(row.layer)), cells(row)));
  rows.push(h("tr", h("th", { scope: "row" }, "all"), cells(overall)));
  const heads = ["Layer", ...available.map(([, label, , title]) => h("span", { title }, label))];
  const meanings = available.map(([, label, , help]) => [h("dt", label), h("dd", help)]);
  return [plainTable("Layers", heads, h("tbody", rows), { numbers: available.map((_, index) => index + 1) }),
    h("details.meanings", h("summary", "What the columns mean"), h("dl", meanings), h("p", `The threshold is ${threshold}.`))];
}

// The order of the memories and the layer, which the URL captures.
function orderForm({ sorts, layers }, list) {
  const option = (value, label, selected) => h("option", { value, selected }, label);
  const sort = urlParameter("sort") || "change";
  const layer = urlParameter("layer");
  const order = h("select", { name: "sort" }, sorts.map((name) => option(name, SORT_LABELS[name] ?? name, name === sort)));
  const layerChoice = h("select", { name: "layer" }, option("", "all layers", layer === ""),
    layers.map((row) => option(String(row.layer), `L${row.layer}`, String(row.layer) === layer)));
  const onchange = () => {
    const choices = { sort: order.value === "change" ? "" : order.value, layer: layerChoice.value };
    updateUrl(choices);
    loadPairs(list, { sort: order.value, layer: layerChoice.value });
  };
  return h("form.filters", { onchange, onsubmit: (event) => event.preventDefault() },
    h("label", "Order ", order), " ", h("label", "Layer ", layerChoice));
}

let pairsRequest = null; // the latest: an older one must not replace its rows

async function loadPairs(list, choices) {
  pairsRequest?.abort();
  const request = pairsRequest = new AbortController();
  list.setAttribute("aria-busy", "true");
  try {
    showPairs(list, await getJson("/diff.json", choices, request));
  } catch (error) {
    if (!isCancelled(error)) replace(list, h("p.problem", { role: "alert" }, bdi(error.message)));
  } finally {
    if (request === pairsRequest) list.removeAttribute("aria-busy");
  }
}

function showPairs(list, { memories }) {
  const heads = ["Memory", "Partner", "Change", "Correlation", "Values", "Keys", "Triggers kept", "Before", "After"];
  const rows = memories.map((pair) => h("tr",
    h("th", { scope: "row" }, memoryName(pair.memory)), h("td", pair.partner ?? h("span.quiet", "none")),
    h("td.number", real(pair.change)), h("td.number", signed(pair.correlation)), h("td.number", signed(pair.value_cosine)),
    h("td.number", signed(pair.key_cosine)), h("td.number", share(pair.triggers_kept, 0)),
    h("td.side", sideOf(pair.before)), h("td.side", sideOf(pair.after))));
  const numbers = [2, 3, 4, 5, 6];
  replace(list, rows.length ? plainTable("Memories, before and after", heads, h("tbody", rows), { numbers })
    : h("p.quiet", "No memory was compared in this layer."));
}

// One of the two models: what the value promotes, the share of prefixes on which the memory fires, and its top trigger.
function sideOf({ tokens, trigger, firing }) {
  const promotes = tokens.flatMap((text) => [token(text), " "]);
  return [h("div", promotes.length ? promotes : h("span.quiet", "no tokens")),
    trigger ? prefixTokens(trigger, { before: 10, after: 3, maximum: trigger.coefficient })
      : h("div.quiet", "no trigger"),
    h("div.quiet.small", `fires on ${share(firing)}`)];
}
