// The bar at the top of every page: navigation, the search box, and the colour theme.
import { bdi, h } from "./dom.js";
import { isExport, layerLink, memoryLink, pageLink, withQuery } from "./links.js";

const PAGE_LABELS = {
  overview: "Overview", search: "Search", diff: "Before and after", leaks: "Leaks", prompt: "Prompt", annotate: "Annotate",
};
const NEEDED_STAGES = { diff: "diff", leaks: "leaks" }; // pages that show a stage which most studies do not have

export function header(page, about) {
  const links = Object.entries(PAGE_LABELS).map(([name, word]) => {
    const href = !NEEDED_STAGES[name] || about?.stages.includes(NEEDED_STAGES[name]) ? pageLink(name) : null;
    return href && h("a", { href, "aria-current": name === page ? "page" : null }, word);
  });
  return h("header.bar", h("a.brand", { href: pageLink("overview") }, "ffscope"), h("nav", { "aria-label": "Pages" }, links),
    about && h("span.study-name", bdi(about.name)), isExport() ? null : jumpBox(), themeButton());
}

const NAME = /^\s*[Ll](\d{1,9})(?:\s*[.:/ ]\s*(\d{1,9}))?\s*$/;

// The page of a memory or layer by name; any other text is searched for in the triggers.
function destination(text) {
  const name = NAME.exec(text);
  if (name === null) return withQuery(pageLink("search"), { trigger: text });
  return name[2] === undefined ? layerLink(name[1]) : memoryLink(`L${name[1]}.${name[2]}`);
}

// The slash key focuses the box.
function jumpBox() {
  const plain = { type: "search", spellcheck: "false", autocomplete: "off", maxLength: 500 };
  const label = "Go to a memory or layer, or search the triggers";
  const box = h("input.jump", { ...plain, placeholder: "L12.345 or text", "aria-label": label, title: label });
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select, [contenteditable]");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      box.focus();
    }
  });
  const onsubmit = (event) => {
    event.preventDefault();
    if (box.value.trim()) location.href = destination(box.value);
  };
  return h("form.go", { role: "search", "aria-label": "Go to or search", onsubmit }, box);
}

const THEMES = ["auto", "light", "dark"];
const SIGNS = { auto: "◐", light: "☀", dark: "☾" };

export function theme() {
  try {
    return localStorage.getItem("ffscope-theme") ?? "auto";
  } catch {
    return "auto"; // the browser blocks local storage
  }
}

function applyTheme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
}

function themeButton() {
  applyTheme(theme());
  const button = h("button.plain", { type: "button" });
  const showTheme = () => {
    button.textContent = SIGNS[theme()];
    button.title = `Colours: ${theme()}`;
    button.setAttribute("aria-label", `Colours: ${theme()}. Change them`);
  };
  button.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length];
    try {
      localStorage.setItem("ffscope-theme", next);
    } catch {
      return;
    }
    applyTheme(next);
    showTheme();
    document.dispatchEvent(new Event("themechange"));
  });
  showTheme();
  return button;
}
