// A prefix as coloured tokens: the tokens up to the trigger token and, in grey, those after it.
import { append, h, real, replace, visibleText, visibleToken } from "./dom.js";

const MAX_PIECE = 200; // characters of one token

// `row` is a prefix. With `coefficients`, one per token, every token is coloured by its share of `maximum`; without, only the
// trigger token, by the row's coefficient. At most `before` tokens are shown before the trigger, with a button for the rest.
// The last occurrence of the text `find` in the prefix is marked.
export function prefixTokens(row, { coefficients = null, maximum = null, before = 60, after = 24, find = "" } = {}) {
  const place = h("div.prefix", { dir: "auto" });
  const matches = tokensWith(row, find);
  const first = Math.max(0, Math.min(row.position - before, ...matches.slice(-1).map((index) => index - 2)));
  drawPrefix(place, row, { coefficients, maximum, first, last: row.position + after, matches });
  return place;
}

// Any text as coloured tokens, spelt as in the vocabulary, with ␣ for a space.
export function textTokens(tokens, coefficients, maximum) {
  const spaced = tokens.map((text) => text.replace(/^␣+/, (spaces) => " ".repeat(spaces.length)));
  const pieces = spaced.map((text, index) => tokenSpan(text, { coefficient: coefficients?.[index] ?? null, maximum }));
  return h("div.prefix", { dir: "auto" }, pieces);
}

function drawPrefix(place, row, view) {
  const pieces = [];
  const last = Math.min(row.tokens.length - 1, view.last);
  for (let index = view.first; index <= last; index++) pieces.push(pieceOf(row, index, view));
  const more = (label, part) => {
    const onclick = () => {
      drawPrefix(place, row, { ...view, ...part });
      place.tabIndex = -1;
      place.focus(); // the button has been removed
    };
    return h("button.plain.more", { type: "button", title: label, "aria-label": label, onclick }, "…");
  };
  replace(place, view.first > 0 && more("Show the text before", { first: 0 }), pieces);
  if (last < row.tokens.length - 1) append(place, [more("Show the text after", { last: Infinity })]);
  else if (row.next_token && row.position === row.tokens.length - 1) {
    append(place, [tokenSpan(row.next_token, { alone: true, classes: ["after", "next"], role: "next token" })]);
  }
}

function pieceOf(row, index, { coefficients, maximum, matches }) {
  const trigger = index === markedToken(row.tokens, row.position);
  const next = !trigger && index === markedToken(row.tokens, row.position + 1);
  const classes = [];
  if (trigger) classes.push("trigger");
  else if (index > row.position) classes.push("after");
  if (next) classes.push("next");
  if (matches.includes(index)) classes.push("match");
  const own = trigger ? row.coefficient ?? null : null;
  const coefficient = coefficients ? coefficients[trigger ? row.position : index] ?? null : own;
  const role = trigger ? "trigger token" : next ? "next token" : null;
  return tokenSpan(row.tokens[index], { coefficient, maximum, classes, role });
}

// A token that is part of a character has no text of its own: the next or previous token with text is marked instead.
function markedToken(tokens, position) {
  let index = position;
  while (index < tokens.length && tokens[index] === "") index++;
  if (index < tokens.length) return index;
  for (index = Math.min(position, tokens.length - 1); index > 0 && tokens[index] === ""; index--);
  return index;
}

// The tokens that contain the last occurrence of a text in the prefix.
function tokensWith({ tokens, position }, find) {
  if (!find) return [];
  const prefix = tokens.slice(0, position + 1);
  const start = prefix.join("").toLowerCase().lastIndexOf(find.toLowerCase());
  if (start < 0) return [];
  const indices = [];
  let end = 0;
  prefix.forEach((text, index) => {
    const begin = end;
    end += text.length;
    if (end > start && begin < start + find.length) indices.unshift(index);
  });
  return indices;
}

function tokenSpan(text, { coefficient = null, maximum = null, classes = [], role = null, alone = false }) {
  // The space before a word is left outside: at a line break its mark would be separated from the word.
  const space = alone ? "" : /^ *(?=[^ ])/.exec(text)?.[0] ?? "";
  const body = text.slice(space.length);
  const span = h(["span", "tok", ...classes].join("."), alone || /^ +$/.test(body) ? visibleToken(body) : visiblePiece(body));
  const words = [role, coefficient === null ? null : `coefficient ${real(coefficient)}`].filter(Boolean);
  if (words.length) span.title = `${visibleToken(text)}: ${words.join(", ")}`;
  heatToken(span, coefficient, maximum);
  return [space, span];
}

function visiblePiece(text) {
  if (text.length <= MAX_PIECE) return visibleText(text);
  return `${visibleText(Array.from(text.slice(0, 2 * MAX_PIECE)).slice(0, MAX_PIECE).join(""))}…`;
}

// Colours a token by its coefficient: larger ones deeper, negative ones in another hue.
export function heatToken(span, coefficient, maximum) {
  if (!coefficient || !maximum || !Number.isFinite(coefficient)) return;
  const heat = Math.min(1, Math.abs(coefficient / maximum));
  if (heat < 0.01) return;
  span.classList.add(coefficient > 0 ? "hot" : "cold");
  span.style.setProperty("--heat", heat.toFixed(3));
}
