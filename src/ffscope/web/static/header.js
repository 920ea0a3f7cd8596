// The bar on top of every page: where one is, where one can go, and light or dark.
import { bdi, h } from "./dom.js";
import { isExport, memoryLink, layerLink, pageLink } from "./links.js";

const SHOWN = { overview: "Overview", search: "Search", prompt: "Prompt", annotate: "Annotate" };

export function header(page, about) {
  const links = Object.entries(SHOWN).map(([name, word]) => {
    const href = pageLink(name);
    return href && h("a", { href, "aria-current": name === page ? "page" : null }, word);
  });
  return h("header.bar", h("a.brand", { href: pageLink("overview") }, "ffscope"), h("nav", { "aria-label": "Pages" }, links),
    about && h("span.studied", bdi(about.name)), isExport() ? null : jump(about), themeButton());
}

// L12.345 and Enter, or the slash key from anywhere.
function jump(about) {
  const plain = { type: "search", spellcheck: "false", autocomplete: "off" };
  const box = h("input.jump", { ...plain, placeholder: "L12.345", "aria-label": "Go to a memory or layer" });
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select, [contenteditable]");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      box.focus();
    }
  });
  const go = (event) => {
    event.preventDefault();
    const found = /^\s*[Ll]?\s*(\d+)(?:\s*[.:/ ]\s*(\d+))?\s*$/.exec(box.value);
    if (found === null) {
      box.setCustomValidity("Write a memory as L12.345, or a layer as L12.");
      box.reportValidity();
    } else location.href = found[2] === undefined ? layerLink(found[1]) : memoryLink(`L${found[1]}.${found[2]}`);
  };
  box.addEventListener("input", () => box.setCustomValidity(""));
  return about && h("form.go", { role: "search", onsubmit: go }, box);
}

const THEMES = ["auto", "light", "dark"];
const SIGNS = { auto: "◐", light: "☀", dark: "☾" };

export function theme() {
  try {
    return localStorage.getItem("ffscope-theme") ?? "auto";
  } catch {
    return "auto"; // a browser that keeps nothing
  }
}

function wear(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
}

function themeButton() {
  wear(theme());
  const button = h("button.plain", { type: "button" });
  const say = () => {
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
    wear(next);
    say();
    document.dispatchEvent(new Event("themechange"));
  });
  say();
  return button;
}
