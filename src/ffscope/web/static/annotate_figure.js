// Figure 2 from automatic patterns and from this person's annotations; drawn when opened.
import { getJson } from "./requests.js";
import { chart } from "./chart.js";
import { bdi, h, replace } from "./dom.js";

export class AnnotateFigure {
  constructor(annotator) {
    this.annotator = annotator;
    this.place = h("div.annotate-figure");
    const summary = h("summary", "Figure 2 so far: automatic patterns and yours");
    this.element = h("details", { ontoggle: () => this.redraw() }, summary, this.place);
  }

  unfold() {
    if (this.element.open) this.redraw();
    else this.element.open = true;
  }

  async redraw() {
    if (!this.element.open) return;
    try {
      const { figure } = await getJson("/annotate/figure.json", { annotator: this.annotator });
      if (figure) await chart(this.place, figure.spec, { label: figure.title });
      else replace(this.place, h("p.quiet", "Nothing to draw yet. Finish a memory first."));
    } catch (error) {
      replace(this.place, h("p.problem", bdi(error.message)));
    }
  }
}
