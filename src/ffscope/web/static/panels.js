// The panels that stages declare, drawn by kind. Their content may come from a corpus and is only ever inserted as text.
import { chart } from "./chart.js";
import { bdi, h, real, replace, visibleText, share, token, whole } from "./dom.js";
import { cutText, memoryName, meter, plainTable } from "./widgets.js";

const MAX_CELL = 600; // characters
const PANEL_KINDS = {
  table: panelTable, bars: (rows) => numbered(rows, textCell), tokens: (rows) => numbered(rows, token),
  histogram: panelHistogram, figure: panelFigure, text: panelText,
};

// One section per panel. An error affects only its own panel.
export function panelSections(panels) {
  return (panels ?? []).map(({ title, kind, help, data }) =>
    h("section.part", h("h2", bdi(title)), help && h("p.quiet.small", bdi(help)), drawnPanel(kind, data, title)));
}

function drawnPanel(kind, data, title) {
  try {
    return PANEL_KINDS[kind](data, title);
  } catch (error) {
    console.warn(error);
    return cannotBeDrawn();
  }
}

function cannotBeDrawn() {
  return h("p.quiet", "This panel cannot be drawn: its data do not match its kind.");
}

function signedShare(number) {
  if (number === null || number === undefined) return "–";
  return `${number > 0 ? "+" : number < 0 ? "−" : ""}${share(Math.abs(number))}`;
}

const asNumber = (format) => (value) => format(value === null || value === undefined ? null : Number(value));
const NUMBER_CELLS = {
  count: asNumber(whole), real: asNumber(real), share: asNumber(share), "signed share": asNumber(signedShare),
};
const WORD_CELLS = {
  text: textCell,
  token: (text) => token(text ?? ""),
  memory: (name) => (/^L\d{1,9}\.\d{1,9}$/.test(name) ? memoryName(name) : textCell(name)),
};

function textCell(text) {
  return h("bdi", cutText(text ?? "–", MAX_CELL));
}

function panelTable({ heads, kinds, rows, more }, title) {
  return [tableOf({ heads, kinds }, title, h("tbody", bodyRows(rows, kinds))), more ? foldedTable(more) : null];
}

function tableOf({ heads, kinds }, title, body, low = false) {
  const numbers = kinds.map((kind, place) => (kind in NUMBER_CELLS ? place : -1)).filter((place) => place >= 0);
  return plainTable(visibleText(title), heads.map((head) => bdi(head)), body, { numbers, low });
}

function bodyRows(rows, kinds) {
  return rows.map((row) => h("tr", row.map((value, place) => {
    const isNumber = kinds[place] in NUMBER_CELLS;
    const cell = (NUMBER_CELLS[kinds[place]] ?? WORD_CELLS[kinds[place]])(value);
    return h(`${place === 0 ? "th" : "td"}${isNumber ? ".number" : ""}`, { scope: place === 0 ? "row" : null }, cell);
  })));
}

// The rows are created when the table is opened, as there may be hundreds.
function foldedTable({ title, heads, kinds, rows }) {
  const body = h("tbody");
  const details = h("details", h("summary", bdi(`${title} (${whole(rows.length)})`)), tableOf({ heads, kinds }, title, body, true));
  details.addEventListener("toggle", () => {
    if (details.open && !body.children.length) replace(body, bodyRows(rows, kinds));
  });
  return details;
}

// Labels or tokens, each with its number and a bar of proportional length.
function numbered(rows, format) {
  const most = Math.max(...rows.map(([, number]) => Math.abs(number ?? 0))) || 1;
  const bar = (number) => meter(Math.abs(number ?? 0) / most, ...(number < 0 ? ["cold"] : []));
  return h("ol.promotes", rows.map(([label, number]) =>
    h("li", format(label), bar(number), h("span.number", asNumber(real)(number)))));
}

function panelHistogram({ edges, counts }, title) {
  const most = Math.max(...counts) || 1;
  const ends = `from ${real(edges[0])} to ${real(edges.at(-1))}`;
  const bars = counts.map((count, bin) => {
    const bar = h("div.bin.hot", { title: `${real(edges[bin])} to ${real(edges[bin + 1])}: ${whole(count)}` });
    bar.style.setProperty("--size", (count / most).toFixed(3));
    return bar;
  });
  const place = h("div.histogram", { role: "img", "aria-label": visibleText(`${title}, ${ends}`) }, bars);
  place.style.setProperty("--bins", counts.length);
  return [place, h("p.quiet.small", `${bars.length} bins ${ends}.`)];
}

function panelFigure(spec, title) {
  const canvas = h("div.drawn");
  chart(canvas, spec, { label: visibleText(title), titled: false }).catch(() => replace(canvas, cannotBeDrawn()));
  return canvas;
}

function panelText(text) {
  return text.split("\n").map((line) => h("p", bdi(line)));
}
