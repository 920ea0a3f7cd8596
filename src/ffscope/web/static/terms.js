// Explanations of technical terms, each once per page: a button that shows the glossary's sentence on hover, focus and click.
import { aboutStudy } from "./about.js";
import { byId, h } from "./dom.js";

const HIDE_AFTER = 200; // milliseconds, so that the pointer can reach the explanation
const explainedTerms = new Set();
let hideOpenTip = () => {};

// The word for a term, with its explanation where the page uses the term for the first time.
export function term(name, word = name) {
  const sentence = aboutStudy()?.glossary?.[name];
  if (!sentence || explainedTerms.has(name)) return word;
  explainedTerms.add(name);
  return explainedWord(name, word, sentence);
}

// A text in which the first use of each term is explained; `words` has the forms of each, as {name: [patterns]}.
export function withTerms(text, words) {
  const matches = Object.entries(words).flatMap(([name, forms]) => {
    const match = new RegExp(`(?<![\\p{L}-])(?:${forms.join("|")})(?![\\p{L}-])`, "iu").exec(text);
    return match && !explainedTerms.has(name) ? [{ name, at: match.index, word: match[0] }] : [];
  });
  matches.sort((a, b) => a.at - b.at);
  const parts = [];
  let end = 0;
  for (const { name, at, word } of matches) {
    if (at < end) continue;
    parts.push(text.slice(end, at), term(name, word));
    end = at + word.length;
  }
  return [...parts, text.slice(end)];
}

function explainedWord(name, word, sentence) {
  const tip = h("div.term-tip", { id: `term-${name.replaceAll(" ", "-")}`, role: "tooltip", hidden: true }, sentence);
  const button = h("button.term", { type: "button", "aria-describedby": tip.id }, word);
  document.body.append(tip);
  let timer = 0;
  const hide = () => {
    clearTimeout(timer);
    tip.hidden = true;
  };
  const show = () => {
    clearTimeout(timer);
    if (hideOpenTip !== hide) hideOpenTip();
    hideOpenTip = hide;
    byId("main")?.append(tip); // within a landmark
    tip.hidden = false;
    placeTip(tip, button.getBoundingClientRect());
  };
  const hideSoon = () => {
    clearTimeout(timer);
    timer = setTimeout(() => document.activeElement === button || hide(), HIDE_AFTER);
  };
  for (const element of [button, tip]) {
    element.addEventListener("pointerenter", show);
    element.addEventListener("pointerleave", hideSoon);
  }
  button.addEventListener("focus", show);
  button.addEventListener("blur", hide);
  button.addEventListener("click", show);
  return h("dfn", button);
}

// Below the word where there is room, else above it; never outside the window.
function placeTip(tip, box) {
  const { offsetWidth, offsetHeight } = tip;
  const below = box.bottom + 4;
  const top = below + offsetHeight <= innerHeight ? below : Math.max(4, box.top - 4 - offsetHeight);
  tip.style.setProperty("top", `${top}px`);
  tip.style.setProperty("left", `${Math.max(4, Math.min(box.left, innerWidth - offsetWidth - 8))}px`);
}

document.addEventListener("keydown", (event) => event.key === "Escape" && hideOpenTip());
document.addEventListener("pointerdown", (event) => event.target.closest?.(".term, .term-tip") || hideOpenTip());
addEventListener("scroll", () => hideOpenTip(), { passive: true, capture: true });
