// Vega-Lite charts in the page's colours and width. The library is large, and loaded only on pages with a chart.
import { h, replace, visibleText } from "./dom.js";

let vegaPromise = null;

function loadVega() {
  vegaPromise ??= new Promise((loaded, failed) => {
    const root = document.documentElement.dataset.root ?? "/";
    const script = h("script", { src: `${root}static/vega.js` });
    script.addEventListener("load", () => loaded(globalThis.vegaEmbed));
    script.addEventListener("error", () => failed(new Error("vega.js cannot be loaded")));
    document.head.append(script);
  });
  return vegaPromise;
}

// The drawing of each place, so that a place with a new chart does not get a second observer.
const drawings = new WeakMap();

// Draws a specification into `place`, and again whenever its width or the theme changes. `onlayer(layer)` is called on a click on a
// layer's mark; `titled: false` omits the title where the page shows it; `label` is for screen readers.
export async function chart(place, spec, { onlayer = null, label = null, titled = true } = {}) {
  const title = titleOfSpec(spec);
  const existing = drawings.get(place);
  const drawing = existing ?? { place, view: null, turn: 0, width: 0 };
  Object.assign(drawing, { spec, onlayer, label: label ?? title ?? "Chart", box: h("div.chart") });
  replace(place, titled && title ? h("div.chart-title", visibleText(title)) : null, drawing.box);
  if (!existing) {
    drawings.set(place, drawing);
    watchDrawing(drawing);
  }
  await drawChart(drawing);
}

function titleOfSpec(spec) {
  const text = typeof spec.title === "object" && spec.title !== null ? spec.title.text : spec.title;
  return Array.isArray(text) ? text.join(" ") : text ?? null;
}

function watchDrawing(drawing) {
  const redraw = () => drawChart(drawing);
  document.addEventListener("themechange", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  let timer = 0;
  new ResizeObserver(() => {
    if (Math.abs(drawing.place.clientWidth - drawing.width) < 2) return; // drawing itself may change the height
    clearTimeout(timer);
    timer = setTimeout(redraw, 100);
  }).observe(drawing.place);
}

async function drawChart(drawing) {
  const width = drawing.place.clientWidth;
  const turn = ++drawing.turn;
  drawing.width = width;
  if (width < 40) return; // not visible yet: the observer calls again
  try {
    const embed = await loadVega();
    if (turn !== drawing.turn) return;
    drawing.view?.finalize();
    drawing.view = null;
    const { view } = await embed(drawing.box, themedSpec(drawing.spec, drawing, width), {
      actions: false, ast: true, renderer: "canvas", defaultStyle: false, tooltip: showTip, mode: "vega-lite", logLevel: 1,
    });
    if (turn !== drawing.turn) {
      view.finalize();
      return;
    }
    drawing.view = view;
    listenForLayers(drawing);
  } catch (error) {
    if (turn !== drawing.turn) return;
    replace(drawing.box, h("p.quiet", "This chart cannot be drawn: ", h("bdi", visibleText(error.message))));
  }
}

function listenForLayers({ view, onlayer }) {
  if (!onlayer) return;
  view.addEventListener("click", (event, item) => {
    const layer = item?.datum?.layer;
    if (Number.isInteger(layer)) onlayer(layer);
  });
}

// The specification, made for one width on white paper, with the page's colours and width.
function themedSpec(spec, { label, onlayer }, width) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const ink = colour("ink");
  const inks = { "#000000": ink, black: ink, "#555555": colour("soft"), "#e6e6e6": colour("line"), white: colour("paper") };
  const themed = inkedSpec(spec, inks);
  delete themed.title;
  delete themed.$schema;
  fitSpec(themed, width);
  if (onlayer) pointAtLayers(themed);
  const config = pageConfig(themed.config ?? {}, colour, width);
  return { ...themed, description: label, background: "transparent", padding: 2, config };
}

function inkedSpec(part, inks) {
  if (typeof part === "string") return inks[part] ?? part;
  if (Array.isArray(part)) return part.map((element) => inkedSpec(element, inks));
  if (part === null || typeof part !== "object") return part;
  return Object.fromEntries(Object.entries(part).map(([name, value]) => [name, inkedSpec(value, inks)]));
}

function pageConfig(config, colour, width) {
  const words = { labelColor: colour("soft"), titleColor: colour("ink") };
  const legend = { ...config.legend, ...words, labelLimit: width - 40 };
  if (width < 420) legend.columns = 2;
  return {
    ...config,
    background: "transparent",
    font: getComputedStyle(document.body).fontFamily,
    axis: { ...config.axis, ...words, gridColor: colour("line"), domainColor: colour("soft"), tickColor: colour("soft") },
    legend,
    title: { ...config.title, color: colour("ink"), subtitleColor: colour("soft"), fontWeight: "normal" },
    text: { ...config.text, color: colour("ink") },
    view: { ...config.view, stroke: null },
  };
}

const CHART_MARGIN = 64; // width of an axis and its title

function fitSpec(spec, width) {
  const panels = spec.concat ?? spec.hconcat ?? spec.vconcat;
  if (!panels) {
    scaleMarks(spec, (width - CHART_MARGIN) / (spec.width || width - CHART_MARGIN));
    Object.assign(spec, { width, autosize: { type: "fit-x", contains: "padding" } });
    return;
  }
  const columns = width < 640 || spec.vconcat ? 1 : Math.min(spec.columns ?? 2, panels.length);
  if (spec.concat) spec.columns = columns;
  else if (spec.hconcat && columns === 1) [spec.vconcat, spec.hconcat] = [spec.hconcat, undefined];
  const each = Math.floor(width / columns) - CHART_MARGIN - 16;
  for (const panel of panels) {
    scaleMarks(panel, each / (panel.width || each));
    panel.width = each;
  }
}

// Bars and ticks have a width in pixels, chosen for the width of the specification.
function scaleMarks(spec, factor) {
  const mark = spec.mark;
  if (mark?.size && (mark.type === "bar" || mark.type === "tick")) mark.size = Math.max(1, mark.size * factor);
  for (const layer of spec.layer ?? []) scaleMarks(layer, factor);
}

function pointAtLayers(spec) {
  if (spec.encoding?.x?.field === "layer" && spec.mark) {
    spec.mark = { ...(typeof spec.mark === "string" ? { type: spec.mark } : spec.mark), cursor: "pointer" };
  }
  for (const parts of [spec.layer, spec.concat, spec.hconcat, spec.vconcat]) for (const part of parts ?? []) pointAtLayers(part);
}

let chartTip = null;

// Vega's own tooltip writes markup and a style sheet, which the page's security policy forbids.
function showTip(handler, event, item, value) {
  chartTip ??= document.body.appendChild(h("div.chart-tip", { role: "tooltip", hidden: true }));
  chartTip.hidden = value === null || value === undefined || value === "";
  if (chartTip.hidden) return;
  const rows = typeof value === "object" ? Object.entries(value) : [["", value]];
  replace(chartTip, h("table", rows.map(([name, content]) => h("tr", h("th", visibleText(name)), h("td", visibleText(content))))));
  const left = Math.min(event.clientX + 14, innerWidth - chartTip.offsetWidth - 8);
  const above = event.clientY + 14 + chartTip.offsetHeight > innerHeight;
  chartTip.style.setProperty("left", `${Math.max(4, left)}px`);
  chartTip.style.setProperty("top", `${above ? event.clientY - chartTip.offsetHeight - 10 : event.clientY + 14}px`);
}
