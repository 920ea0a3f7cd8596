// Figures in a grid, each with its title, how to read it, and a sentence on what it shows.
import { chart } from "./chart.js";
import { bdi, h, visibleText } from "./dom.js";
import { layerLink } from "./links.js";

function captionOf({ how_to_read: howToRead, sentence }) {
  if (!howToRead && !sentence) return null;
  return h("figcaption", howToRead && h("p.how-to-read", bdi(howToRead)), sentence && h("p", bdi(sentence)));
}

// Draws them one after the other, so that the page stays responsive.
export async function drawFigures(place, figures) {
  const drawn = figures.map((figure) => {
    const canvas = h("div.drawn");
    canvas.style.setProperty("min-height", `${(figure.spec.height ?? 240) + 45}px`); // so that nothing moves when the chart appears
    const number = figure.number ? h("span.quiet", `Figure ${figure.number}. `) : null;
    const title = h("figcaption.over", number, h("strong", visibleText(figure.title)));
    place.append(h("figure", title, canvas, captionOf(figure)));
    return [canvas, figure];
  });
  const onlayer = (layer) => location.assign(layerLink(layer));
  for (const [canvas, figure] of drawn) {
    await chart(canvas, figure.spec, { label: figure.title, titled: false, onlayer });
    await new Promise((next) => setTimeout(next));
  }
}
