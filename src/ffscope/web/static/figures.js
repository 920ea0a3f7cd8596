// Figures in an even grid, each with its title and its sentence.
import { chart } from "./chart.js";
import { bdi, h, visibleText } from "./dom.js";
import { layerLink } from "./links.js";

// One after the other, so that the page can be read and scrolled meanwhile.
export async function drawFigures(place, figures) {
  const drawn = figures.map((figure) => {
    const canvas = h("div.drawn");
    canvas.style.setProperty("min-height", `${(figure.spec.height ?? 240) + 45}px`); // so that nothing moves when it is drawn
    const number = figure.number ? h("span.quiet", `Figure ${figure.number}. `) : null;
    place.append(h("figure", h("figcaption.over", number, h("strong", visibleText(figure.title))), canvas,
      figure.sentence && h("figcaption", bdi(figure.sentence))));
    return [canvas, figure];
  });
  const onlayer = (layer) => location.assign(layerLink(layer));
  for (const [canvas, figure] of drawn) {
    await chart(canvas, figure.spec, { label: figure.title, titled: false, onlayer });
    await new Promise((next) => setTimeout(next));
  }
}
