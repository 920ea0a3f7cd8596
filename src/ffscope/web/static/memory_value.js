// The tokens that a memory's value promotes and suppresses, and whether they follow its triggers.
import { h, real, share, token, whole } from "./dom.js";
import { measureHelp } from "./measures.js";
import { term } from "./terms.js";
import { agreesMark, countOf, meter, nextRankWords } from "./widgets.js";

export function valuePart(data) {
  const { value } = data;
  if (!value) return null;
  const norm = `Norm of the value: ${real(value.norm)}.`;
  if (!value.promotes.length) return h("p.quiet", "This model has no unembedding, so the value cannot be read as tokens. ", norm);
  const highest = Math.max(...value.promotes.map(([, probability]) => probability ?? 0)) || 1;
  const promoted = value.promotes.map(([text, probability]) =>
    h("li", token(text), meter(probability / highest), h("span.number", real(probability))));
  return [
    h("p", agreementSentence(data)),
    value.agrees === null ? null : h("p", `${measureHelp("agrees")}: `, agreesMark(value.agrees), "."),
    h("h3", "Promoted tokens with their probabilities"), h("ol.promotes", promoted),
    h("h3", "Suppressed tokens"), h("p.suppresses", value.suppresses.map((text) => [token(text), " "])),
    h("p.quiet.small", norm, " The probabilities are not calibrated; only their order is meaningful."),
  ];
}

function agreementSentence({ value, triggers }) {
  const top = token(value.promotes[0][0]);
  const of = triggers.reduce((sum, row) => sum + 1 + (row.folded?.length ?? 0), 0);
  const end = of ? "." : "; there is no trigger to compare it with.";
  if (value.agrees === null) return ["The ", term("value"), "’s top token is ", top, end];
  const hits = whole(Math.round(value.precision * of));
  const follows = ` follows ${hits} of ${countOf(of, "trigger")} (precision ${share(value.precision, 0)}); `;
  return ["The ", term("value"), "’s top token ", top, follows, nextRankWords(value), "."];
}
