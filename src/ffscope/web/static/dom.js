// Elements and text. Text always becomes text nodes, so that no corpus, token or user can put markup on a page.

// h("a.class", {href: "…", onclick: f}, "text", child, [children], null) makes an element.
export function h(kind, ...rest) {
  const [tag, ...classes] = kind.split(".");
  const element = document.createElement(tag || "div");
  if (classes.length) element.className = classes.join(" ");
  const attributes = isAttributes(rest[0]) ? rest.shift() : {};
  for (const [name, value] of Object.entries(attributes)) setAttribute(element, name, value);
  append(element, rest);
  return element;
}

function isAttributes(argument) {
  return argument !== null && typeof argument === "object" && !Array.isArray(argument) && !(argument instanceof Node);
}

function setAttribute(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
  else if (name === "style") for (const [property, setting] of Object.entries(value)) element.style.setProperty(property, setting);
  else if (name in element && typeof value !== "string") element[name] = value;
  else element.setAttribute(name, value === true ? "" : value);
}

export function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

export function replace(element, ...children) {
  element.replaceChildren();
  return append(element, children);
}

const SPACES = { "\n": "⏎", "\t": "⇥", "\r": "␍" };

// Text with line breaks, control and direction characters replaced by visible ones.
export function visibleText(text) {
  return String(text).replace(/[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu, (mark) => {
    if (mark in SPACES) return SPACES[mark];
    if (/\p{Zs}/u.test(mark)) return "⍽";
    return `<${mark.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}>`;
  });
}

const MAX_TOKEN = 60; // characters

// A single token: leading and trailing spaces are visible, and long ones are cut.
export function visibleToken(text) {
  const body = visibleText(String(text).slice(0, 4 * MAX_TOKEN)).replace(/^ +| +$/g, (spaces) => "␣".repeat(spaces.length));
  const letters = Array.from(body);
  return letters.length <= MAX_TOKEN ? body : letters.slice(0, MAX_TOKEN - 1).join("") + "…";
}

// Untrusted text in its own element, so that its writing direction does not affect its neighbours.
export function bdi(text, ...classes) {
  return h(["bdi", ...classes].join("."), visibleText(text));
}

export function token(text, ...classes) {
  return h(["bdi", "token", ...classes].join("."), visibleToken(text));
}

export function whole(number) {
  return number === null || number === undefined ? "–" : Number(number).toLocaleString("en-US");
}

export function share(number, digits = 1) {
  if (number === null || number === undefined) return "–";
  const percent = 100 * number;
  return `${percent !== 0 && Math.abs(percent) < 0.1 ? Number(percent.toPrecision(2)) : percent.toFixed(digits)} %`;
}

export function real(number, digits = 3) {
  if (number === null || number === undefined) return "–";
  if (number === 0) return "0";
  const size = Math.abs(number);
  const written = size >= 1e5 || size < 1e-3 ? number.toExponential(1) : String(Number(number.toPrecision(digits)));
  return written.replace(/^-/, "−"); // a hyphen stays in exponents
}

export function byId(id) {
  return document.getElementById(id);
}
