// Figure 2 as the machine has it and as this person has it; drawn when somebody looks.
import { ask } from "./ask.js";
import { chart } from "./chart.js";
import { bdi, h, replace } from "./dom.js";

export class AnnotateFigure {
  constructor(annotator) {
    this.annotator = annotator;
    this.place = h("div.annotate-figure");
    this.element = h("details", { ontoggle: () => this.again() }, h("summary", "Figure 2 so far: the machine and you"), this.place);
  }

  unfold() {
    if (this.element.open) this.again();
    else this.element.open = true;
  }

  async again() {
    if (!this.element.open) return;
    try {
      const { figure } = await ask("/annotate/figure.json", { annotator: this.annotator });
      if (figure) await chart(this.place, figure.spec, { label: figure.title });
      else replace(this.place, h("p.quiet", "There is nothing to draw yet. Finish a memory first."));
    } catch (error) {
      replace(this.place, h("p.problem", bdi(error.message)));
    }
  }
}
