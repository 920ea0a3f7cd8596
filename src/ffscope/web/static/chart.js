// Vega-Lite charts in the page's own colours and width. The program that draws them is big, and loaded only where there is one.
import { h, replace, seen } from "./dom.js";

let vegaAsked = null;

function loadVega() {
  vegaAsked ??= new Promise((loaded, failed) => {
    const root = document.documentElement.dataset.root ?? "/";
    const script = h("script", { src: `${root}static/vega.js` });
    script.addEventListener("load", () => loaded(globalThis.vegaEmbed));
    script.addEventListener("error", () => failed(new Error("vega.js cannot be loaded")));
    document.head.append(script);
  });
  return vegaAsked;
}

// What each place shows, so that a place that is given another chart does not listen twice.
const drawings = new WeakMap();

// Draws a specification into `place`, anew whenever its width or the theme changes. `onlayer(layer)` is called when a mark of a
// layer is clicked; `titled: false` leaves the title out where the page says it; `label` is what a screen reader says.
export async function chart(place, spec, { onlayer = null, label = null, titled = true } = {}) {
  const title = titleOfSpec(spec);
  const known = drawings.get(place);
  const drawing = known ?? { place, view: null, turn: 0, width: 0 };
  Object.assign(drawing, { spec, onlayer, label: label ?? title ?? "Chart", box: h("div.chart") });
  replace(place, titled && title ? h("div.chart-title", seen(title)) : null, drawing.box);
  if (!known) {
    drawings.set(place, drawing);
    watchDrawing(drawing);
  }
  await drawChart(drawing);
}

function titleOfSpec(spec) {
  const said = typeof spec.title === "object" && spec.title !== null ? spec.title.text : spec.title;
  return Array.isArray(said) ? said.join(" ") : said ?? null;
}

function watchDrawing(drawing) {
  const again = () => drawChart(drawing);
  document.addEventListener("themechange", again);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  let soon = 0;
  new ResizeObserver(() => {
    if (Math.abs(drawing.place.clientWidth - drawing.width) < 2) return; // drawing itself may change the height
    clearTimeout(soon);
    soon = setTimeout(again, 100);
  }).observe(drawing.place);
}

async function drawChart(drawing) {
  const width = drawing.place.clientWidth;
  const turn = ++drawing.turn;
  drawing.width = width;
  if (width < 40) return; // not to be seen yet: the observer calls again
  try {
    const embed = await loadVega();
    if (turn !== drawing.turn) return;
    drawing.view?.finalize();
    drawing.view = null;
    const { view } = await embed(drawing.box, dressed(drawing.spec, drawing, width), {
      actions: false, ast: true, renderer: "canvas", defaultStyle: false, tooltip: showTip, mode: "vega-lite", logLevel: 1,
    });
    if (turn !== drawing.turn) {
      view.finalize();
      return;
    }
    drawing.view = view;
    listenForLayers(drawing);
  } catch (error) {
    if (turn === drawing.turn) replace(drawing.box, h("p.quiet", "This chart cannot be drawn: ", h("bdi", seen(error.message))));
  }
}

function listenForLayers({ view, onlayer }) {
  if (!onlayer) return;
  view.addEventListener("click", (event, item) => {
    const layer = item?.datum?.layer;
    if (Number.isInteger(layer)) onlayer(layer);
  });
}

// The specification with the page's colours and width. It was made for one width on white paper.
function dressed(spec, { label, onlayer }, width) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const ink = colour("ink");
  const inks = { "#000000": ink, black: ink, "#555555": colour("soft"), "#e6e6e6": colour("line"), white: colour("paper") };
  const made = inkedSpec(spec, inks);
  delete made.title;
  delete made.$schema;
  fitSpec(made, width);
  if (onlayer) pointAtLayers(made);
  const config = pageConfig(made.config ?? {}, colour, width);
  return { ...made, description: label, background: "transparent", padding: 2, config };
}

function inkedSpec(part, inks) {
  if (typeof part === "string") return inks[part] ?? part;
  if (Array.isArray(part)) return part.map((one) => inkedSpec(one, inks));
  if (part === null || typeof part !== "object") return part;
  return Object.fromEntries(Object.entries(part).map(([name, one]) => [name, inkedSpec(one, inks)]));
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

const CHART_AROUND = 64; // what an axis and its title take beside the marks

function fitSpec(spec, width) {
  const panels = spec.concat ?? spec.hconcat ?? spec.vconcat;
  if (!panels) {
    scaleMarks(spec, (width - CHART_AROUND) / (spec.width || width - CHART_AROUND));
    Object.assign(spec, { width, autosize: { type: "fit-x", contains: "padding" } });
    return;
  }
  const columns = width < 640 || spec.vconcat ? 1 : Math.min(spec.columns ?? 2, panels.length);
  if (spec.concat) spec.columns = columns;
  else if (spec.hconcat && columns === 1) [spec.vconcat, spec.hconcat] = [spec.hconcat, undefined];
  const each = Math.floor(width / columns) - CHART_AROUND - 16;
  for (const panel of panels) {
    scaleMarks(panel, each / (panel.width || each));
    panel.width = each;
  }
}

// Bars and ticks have a width in pixels, made for the width of the specification.
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

// Vega's own tooltip writes markup and a style sheet, which this page allows nobody.
function showTip(handler, event, item, value) {
  chartTip ??= document.body.appendChild(h("div.chart-tip", { role: "tooltip", hidden: true }));
  chartTip.hidden = value === null || value === undefined || value === "";
  if (chartTip.hidden) return;
  const rows = typeof value === "object" ? Object.entries(value) : [["", value]];
  replace(chartTip, h("table", rows.map(([name, said]) => h("tr", h("th", seen(name)), h("td", seen(said))))));
  const left = Math.min(event.clientX + 14, innerWidth - chartTip.offsetWidth - 8);
  const above = event.clientY + 14 + chartTip.offsetHeight > innerHeight;
  chartTip.style.setProperty("left", `${Math.max(4, left)}px`);
  chartTip.style.setProperty("top", `${above ? event.clientY - chartTip.offsetHeight - 10 : event.clientY + 14}px`);
}
