// What stands beside a memory's examples: its value, and what mutation did to its triggers.
import { h, real, replace, share, token, whole } from "./dom.js";
import { AGREEMENT, agreesMark, countOf, meter, nextRankWords, plainTable } from "./widgets.js";

export function valuePart(twin) {
  const { value } = twin;
  if (!value) return null;
  const norm = `Norm of the value: ${real(value.norm)}.`;
  if (!value.promotes.length) return h("p.quiet", "This model has no unembedding to read the value by. ", norm);
  const highest = Math.max(...value.promotes.map(([, probability]) => probability ?? 0)) || 1;
  const promoted = value.promotes.map(([text, probability]) =>
    h("li", token(text), meter(probability / highest), h("span.number", real(probability))));
  return [
    h("p", agreementSentence(twin)),
    value.agrees === null ? null : h("p", `${AGREEMENT}: `, agreesMark(value.agrees), "."),
    h("h3", "Promotes"), h("ol.promotes", promoted),
    h("h3", "Suppresses"), h("p.suppresses", value.suppresses.map((text) => [token(text), " "])),
    h("p.quiet.small", norm, " The probabilities are not calibrated: what counts is their order."),
  ];
}

function agreementSentence({ value, triggers }) {
  const top = token(value.promotes[0][0]);
  const of = triggers.reduce((sum, row) => sum + 1 + (row.folded?.length ?? 0), 0);
  if (value.agrees === null) return ["The value’s top token is ", top, of ? "." : "; there is no trigger to compare it with."];
  const hits = whole(Math.round(value.precision * of));
  const follows = ` follows ${hits} of ${countOf(of, "trigger")} (precision ${share(value.precision, 0)}); `;
  return ["The value’s top token ", top, follows, nextRankWords(value), "."];
}

export function mutationPart({ mutation }) {
  if (!mutation) return null;
  const rows = Object.entries(mutation.summary).map(([removed, { median, count }]) =>
    h("tr", h("th", { scope: "row" }, removed), h("td.number", signedShare(median)), h("td.number", whole(count))));
  return [
    h("p.quiet.small", "How the coefficient changes when the trigger loses a token."),
    plainTable("Mutation", ["Removed token", "Median change", "Triggers"], h("tbody", rows), { numbers: [1, 2] }),
    mutationRows(mutation.rows),
  ];
}

function signedShare(number) {
  if (number === null || number === undefined) return "–";
  return `${number > 0 ? "+" : number < 0 ? "−" : ""}${share(Math.abs(number))}`;
}

function mutationRows(mutated) {
  if (!mutated.length) return null;
  const body = h("tbody");
  const heads = ["Rank", "Removed", "Token", "From", "To", "Change"];
  const details = h("details", h("summary", `Each removal (${whole(mutated.length)})`),
    plainTable("Each removal", heads, body, { numbers: [0, 3, 4, 5], low: true }));
  // Made when it is opened: there are three for every trigger.
  details.addEventListener("toggle", () => {
    if (details.open && !body.children.length) replace(body, mutated.map(mutationRow));
  });
  return details;
}

function mutationRow({ rank, removed, token: lost, coefficient, mutated, change }) {
  const numbers = [real(coefficient), real(mutated), signedShare(change)].map((said) => h("td.number", said));
  return h("tr", h("th.number", { scope: "row" }, whole(rank)), h("td", removed), h("td", token(lost ?? "")), numbers);
}
