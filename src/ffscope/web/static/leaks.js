// Text that the model completes word for word, with the memories that hold it, and the exposure of canaries.
import { bdi, h, real, replace, share, visibleText, whole } from "./dom.js";
import { isExport } from "./links.js";
import { getJson, isCancelled } from "./requests.js";
import { term } from "./terms.js";
import { countOf, cutText, memoryName, plainTable, updateUrl, urlParameter } from "./widgets.js";

const LEAK_KINDS = { "": "all", personal: "with personal data", secret: "secrets", phrase: "phrases", copied: "copied" };
const MOST_HOLDERS = 6;

export async function leaksPage(place, data) {
  document.title = "Leaks – ffscope";
  const list = h("div");
  replace(place, h("h1", "What the model gives away"), searchedLine(data), ratesLine(data), measuredLine(data),
    data.masked && h("p.note", "Personal data and canaries are masked. To see them, run the command again with --show-personal."),
    data.canaries.length > 0 && [h("h2", "Canaries"), canaryTable(data.canaries)],
    h("h2", "Completions"), isExport() ? null : kindForm(list), list, meanings());
  showLeaks(list, data);
  const kind = urlParameter("kind") || "";
  if (!isExport() && kind !== "") await loadLeaks(list, kind);
}

function searchedLine({ leak_tokens: tokens, leak_starts: starts, searched }) {
  const where = starts === "triggers" ? ["a ", term("trigger")] : "any prefix";
  return h("p.quiet", `Texts of ${tokens} tokens or more that the model predicts word for word after `, where,
    `, in ${countOf(searched.sentences, "searched sentence")}.`);
}

// The same on text that was held out: what is completed there was not read in this text.
function ratesLine({ searched, held_out: heldOut }) {
  const rate = (text) => real((1000 * text.secret) / text.sentences);
  if (!searched.sentences) return null;
  return h("p", "From any prefix there are ", h("strong", rate(searched)), " secrets per 1,000 sentences",
    heldOut.sentences ? [", and ", h("strong", rate(heldOut)), " in held-out text."] : "; there is no held-out text to compare.");
}

function measuredLine({ numbers, loss, loss_change_together: together, all_memories: memories }) {
  if (!numbers.measured) return null;
  const broken = `${numbers.broken} of ${numbers.measured} that were measured are broken without some memories`;
  if (!numbers.broken) return h("p", `${broken}.`);
  const random = share(numbers.random_broken);
  return h("p", `${broken} (median ${real(numbers.memories)}); as many random memories break ${random}.`,
    together && [` Without all ${whole(memories)} of them, held-out perplexity is ${real(Math.exp(loss + together[0]), 4)} `,
      `instead of ${real(Math.exp(loss), 4)}.`]);
}

function canaryTable(canaries) {
  const rows = canaries.map((row) => h("tr", h("td", bdi(cutText(row.text, 200))),
    h("td.number", row.bound ? `≥ ${row.exposure.toFixed(1)}` : row.exposure.toFixed(1)),
    h("td.number", row.modelled === null ? "–" : row.modelled.toFixed(1)), h("td.number", row.space.toFixed(1)),
    h("td.number", `${whole(row.rank)} of ${whole(row.candidates + 1)}${row.exact ? ", all" : ""}`)));
  const heads = ["String", "Exposure (bits)", "By the skew-normal model", "Bits of the format", "Rank"];
  return plainTable("Canaries", heads, h("tbody", rows), { numbers: [1, 2, 3, 4] });
}

// The kind of leaks, which the URL captures.
function kindForm(list) {
  const chosen = urlParameter("kind") || "";
  const select = h("select", { name: "kind" },
    Object.entries(LEAK_KINDS).map(([value, label]) => h("option", { value, selected: value === chosen }, label)));
  const onchange = () => {
    updateUrl({ kind: select.value });
    loadLeaks(list, select.value);
  };
  return h("form.filters", { onchange, onsubmit: (event) => event.preventDefault() }, h("label", "Show ", select));
}

let leaksRequest = null; // the latest: an older one must not replace its rows

async function loadLeaks(list, kind) {
  leaksRequest?.abort();
  const request = leaksRequest = new AbortController();
  list.setAttribute("aria-busy", "true");
  try {
    showLeaks(list, await getJson("/leaks.json", { kind }, request));
  } catch (error) {
    if (!isCancelled(error)) replace(list, h("p.problem", { role: "alert" }, bdi(error.message)));
  } finally {
    if (request === leaksRequest) list.removeAttribute("aria-busy");
  }
}

function showLeaks(list, { leaks }) {
  const heads = [
    "Leak", "Kind", "Prefix → completion", "Tokens", "Other contexts", "Drop", "Held-out loss", "Memories that hold it",
  ];
  const rows = leaks.map((row) => h("tr",
    h("th", { scope: "row" }, whole(row.leak)), h("td", bdi(row.personal ? `${row.kind}, ${row.personal}` : row.kind)),
    h("td", leakText(row)), h("td.number", whole(row.tokens)), h("td.number", whole(row.wider_contexts ?? row.contexts)),
    h("td.number", row.memories === null ? "–" : real(row.drop)), h("td.number", lossChange(row.loss_change)),
    h("td", holdersOf(row))));
  replace(list, rows.length ? plainTable("Completions", heads, h("tbody", rows), { numbers: [3, 4, 5, 6] })
    : h("p.quiet", "There are none."));
}

function leakText({ prefix, text, rest }) {
  return [h("span.quiet", bdi(visibleText(prefix.slice(-120)))), h("strong", bdi(visibleText(text))),
    rest && h("span.quiet", bdi(visibleText(rest.slice(0, 40))))];
}

const lossChange = (number) => (number === null ? "–" : number.toFixed(4).replace("-", "−"));

function holdersOf({ holders, log_prob: logProb, memories }) {
  if (logProb === null) return h("span.quiet", "not measured");
  if (memories === null) return h("span.quiet", "not broken by those that were removed");
  const names = holders.slice(0, MOST_HOLDERS).flatMap((holder) => [memoryName(holder.memory), " "]);
  return [names, holders.length > MOST_HOLDERS && h("span.quiet", `and ${holders.length - MOST_HOLDERS} more`)];
}

function meanings() {
  const rows = [
    ["Kind", "Secret: tied to one context. Phrase: it, or most of its parts, also occurs in other contexts. Copied: most of its "
      + "parts occur earlier in the sentence."],
    ["Other contexts", "In how many contexts other than this one the completion occurs in the searched text, or in the wider "
      + "text that was named"],
    ["Drop", "Of the completion’s log-probability without the memories that hold it, in nats"],
    ["Held-out loss", "Its change without these memories, in nats"],
    ["Memories that hold it", "The fewest whose joint removal breaks the completion"],
  ];
  return h("details.meanings", h("summary", "What the columns mean"),
    h("dl", rows.map(([label, help]) => [h("dt", label), h("dd", help)])));
}
