// Keyboard shortcuts of the annotation page. They are inactive while typing in a field.
import { h } from "./dom.js";

const KEYS = [
  ["j k", "or ↓ ↑: next, previous prefix"],
  ["1 … 6", "mark the prefix with this pattern, or unmark it; the first unused number adds a pattern"],
  ["a", "add a pattern and describe it"],
  ["n", "select the next pattern"],
  ["d", "describe the selected pattern; Enter or Esc leaves the field"],
  ["s m", "set the selected pattern to shallow, semantic"],
  ["x", "remove the selected pattern"],
  ["0", "no pattern"],
  ["u r", "undo, redo"],
  ["Enter", "done, next"],
  ["→ ←", "skip, back"],
  ["?", "show these keys"],
];

const MAIN_KEYS = [
  ["j k", "move"], ["1–6", "mark"], ["a", "add"], ["d", "describe"], ["s m", "kind"], ["0", "none"],
  ["u", "undo"], ["Enter", "done"], ["→", "skip"], ["?", "all keys"],
];

export function keyLine() {
  return h("p.key-line.soft", MAIN_KEYS.map(([key, words]) => [h("span", h("kbd", key), ` ${words}`), " "]));
}

export function showKeys() {
  if (document.querySelector("dialog.keys")) return;
  const dialog = h("dialog.keys", { "aria-label": "Keys", onclose: () => dialog.remove() }, h("h2", "Keys"),
    h("dl", KEYS.map(([key, words]) => [h("dt", h("kbd", key)), h("dd", words)])),
    h("form", { method: "dialog" }, h("button", { type: "submit" }, "Close")));
  document.body.append(dialog);
  dialog.showModal();
}

// Performs the action of a key, unless a field, a button, a dialog or the browser handles it.
export function annotateKey(event, sheet) {
  const { key, target } = event;
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || document.querySelector("dialog[open]")) return;
  if (target.closest?.("input, textarea, select, [contenteditable]")) return;
  if (key === "Enter" && target.closest?.("button, a, summary")) return;
  const action = actionOf(key, sheet);
  if (!action || (event.repeat && !["j", "k", "ArrowDown", "ArrowUp"].includes(key))) return;
  event.preventDefault();
  action();
}

function actionOf(key, sheet) {
  if (/^[1-9]$/.test(key)) return () => sheet.mark(Number(key) - 1);
  return {
    j: () => sheet.move(1), ArrowDown: () => sheet.move(1), k: () => sheet.move(-1), ArrowUp: () => sheet.move(-1),
    a: () => sheet.add(), n: () => sheet.chooseNext(), d: () => sheet.describe(), x: () => sheet.remove(sheet.chosen),
    s: () => sheet.kind("shallow"), m: () => sheet.kind("semantic"), 0: () => sheet.toggleNone(),
    u: () => sheet.undo(), r: () => sheet.redo(),
    Enter: () => sheet.done(), ArrowRight: () => sheet.page.skip(), ArrowLeft: () => sheet.page.back(), "?": showKeys,
  }[key];
}
