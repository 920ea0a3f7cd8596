// A prefix as coloured tokens: what the memory read, the trigger token, and, in grey, what it did not see.
import { append, h, real, replace, visibleText, visibleToken } from "./dom.js";

const LONGEST_PIECE = 200; // letters of one token

// `row` is a prefix row. With `coefficients`, one for each token, every token is coloured by its share of `maximum`; without,
// the trigger token by the row's own coefficient. Of a long context the last `before` tokens are shown, and a button for the
// rest; `find` is a text whose places in the prefix are marked.
export function prefixTokens(row, { coefficients = null, maximum = null, before = 60, after = 24, find = "" } = {}) {
  const place = h("div.prefix", { dir: "auto" });
  const found = tokensWith(row, find);
  const first = Math.max(0, Math.min(row.position - before, ...found.slice(-1).map((index) => index - 2)));
  drawPrefix(place, row, { coefficients, maximum, first, last: row.position + after, found });
  return place;
}

// Any text as coloured tokens, such as one's own. Its tokens come as the vocabulary spells them, where a space is shown.
export function textTokens(tokens, coefficients, maximum) {
  const spaced = tokens.map((text) => text.replace(/^␣+/, (spaces) => " ".repeat(spaces.length)));
  const pieces = spaced.map((text, index) => tokenSpan(text, { coefficient: coefficients?.[index] ?? null, maximum }));
  return h("div.prefix", { dir: "auto" }, pieces);
}

function drawPrefix(place, row, view) {
  const shown = [];
  const last = Math.min(row.tokens.length - 1, view.last);
  for (let index = view.first; index <= last; index++) shown.push(pieceOf(row, index, view));
  const more = (word, part) => {
    const onclick = () => {
      drawPrefix(place, row, { ...view, ...part });
      place.tabIndex = -1;
      place.focus(); // the button is gone
    };
    return h("button.plain.more", { type: "button", title: word, "aria-label": word, onclick }, "…");
  };
  replace(place, view.first > 0 && more("Show what stands before", { first: 0 }), shown);
  if (last < row.tokens.length - 1) append(place, [more("Show what follows", { last: Infinity })]);
  else if (row.next_token && row.position === row.tokens.length - 1) {
    append(place, [tokenSpan(row.next_token, { alone: true, classes: ["after", "next"], said: "next token" })]);
  }
}

function pieceOf(row, index, { coefficients, maximum, found }) {
  const trigger = index === markedToken(row.tokens, row.position);
  const next = !trigger && index === markedToken(row.tokens, row.position + 1);
  const classes = [];
  if (trigger) classes.push("trigger");
  else if (index > row.position) classes.push("after");
  if (next) classes.push("next");
  if (found.includes(index)) classes.push("found");
  const own = trigger ? row.coefficient ?? null : null;
  const coefficient = coefficients ? coefficients[trigger ? row.position : index] ?? null : own;
  const said = trigger ? "trigger token" : next ? "next token" : null;
  return tokenSpan(row.tokens[index], { coefficient, maximum, classes, said });
}

// Half a character has no text of its own: the piece that has it, behind it or before it, is marked instead.
function markedToken(tokens, position) {
  let index = position;
  while (index < tokens.length && tokens[index] === "") index++;
  if (index < tokens.length) return index;
  for (index = Math.min(position, tokens.length - 1); index > 0 && tokens[index] === ""; index--);
  return index;
}

// The tokens of a prefix that hold the last place of a text in it.
function tokensWith({ tokens, position }, find) {
  if (!find) return [];
  const read = tokens.slice(0, position + 1);
  const start = read.join("").toLowerCase().lastIndexOf(find.toLowerCase());
  if (start < 0) return [];
  const indices = [];
  let end = 0;
  read.forEach((text, index) => {
    const begin = end;
    end += text.length;
    if (end > start && begin < start + find.length) indices.unshift(index);
  });
  return indices;
}

function tokenSpan(text, { coefficient = null, maximum = null, classes = [], said = null, alone = false }) {
  // The space before a word stays outside: at the end of a line it would be marked there, away from its word.
  const space = alone ? "" : /^ *(?=[^ ])/.exec(text)?.[0] ?? "";
  const body = text.slice(space.length);
  const span = h(["span", "tok", ...classes].join("."), alone || /^ +$/.test(body) ? visibleToken(body) : visiblePiece(body));
  const words = [said, coefficient === null ? null : `coefficient ${real(coefficient)}`].filter(Boolean);
  if (words.length) span.title = `${visibleToken(text)}: ${words.join(", ")}`;
  heatToken(span, coefficient, maximum);
  return [space, span];
}

function visiblePiece(text) {
  if (text.length <= LONGEST_PIECE) return visibleText(text);
  return `${visibleText(Array.from(text.slice(0, 2 * LONGEST_PIECE)).slice(0, LONGEST_PIECE).join(""))}…`;
}

// Colours a token by its coefficient: the higher, the deeper; below 0 in the other hue.
export function heatToken(span, coefficient, maximum) {
  if (!coefficient || !maximum || !Number.isFinite(coefficient)) return;
  const heat = Math.min(1, Math.abs(coefficient / maximum));
  if (heat < 0.01) return;
  span.classList.add(coefficient > 0 ? "hot" : "cold");
  span.style.setProperty("--heat", heat.toFixed(3));
}
