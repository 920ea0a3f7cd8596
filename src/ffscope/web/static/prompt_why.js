// Why token A rather than token B: the contribution of each memory and layer to the difference of their logits.
import { h, real, replace, visibleToken, token } from "./dom.js";
import { changeButtons } from "./interventions.js";
import { layerLink } from "./links.js";
import { ModelRequest } from "./prompt_request.js";
import { runQuestion } from "./prompt_link.js";
import { headRow, promoted, pushBar, weightedMemory } from "./prompt_parts.js";

const BOTH = ["a", "b"];

export class PromptWhy {
  constructor(page) {
    this.page = page;
    this.request = new ModelRequest("prompt-why");
    this.boxes = Object.fromEntries(BOTH.map((which) => [which, this.box(which)]));
    // A token chosen from the list is identified by its id, since spellings are not unique.
    this.ids = { a: null, b: null };
    this.result = h("div");
    const labelled = (which) => h("label", `Token ${which.toUpperCase()} `, this.boxes[which]);
    const form = h("form.why-form", { onsubmit: (event) => this.submit(event) }, labelled("a"), labelled("b"),
      h("button", { type: "submit" }, "Compare"));
    this.element = h("section", h("h2", "Why A rather than B"),
      h("p.soft", "Type a token as it is spelt here (␣ for a space), or # and its id. A push is what a memory adds directly to ",
        "the logit of A minus that of B; its effect through later layers is not included."), form,
      this.request.status, this.request.error, this.result);
  }

  box(which) {
    return h("input.token-box", { required: true, spellcheck: "false", autocomplete: "off", oninput: () => {
      this.ids[which] = null;
    } });
  }

  choose(which, { id, token: text }) {
    this.ids[which] = id;
    this.boxes[which].value = visibleToken(text);
  }

  submit(event) {
    event.preventDefault();
    this.page.keep(Object.fromEntries(BOTH.map((which) => [which, this.tokenOf(which)])));
    this.read({ ...this.page.link });
  }

  tokenOf(which) {
    if (this.ids[which] !== null) return `#${this.ids[which]}`;
    return this.boxes[which].value;
  }

  // Asks the question in the URL; without one, nothing is shown.
  async read(link) {
    const { position, a, b } = link;
    const parameters = { ...runQuestion(link), position, a, b };
    const question = a && b ? JSON.stringify(parameters) : null;
    if (question === this.question && question !== null) return; // the lens, for instance, does not affect it
    this.question = question;
    if (question === null) {
      this.request.cancel(this.result);
      replace(this.result);
      return;
    }
    for (const which of BOTH) if (this.tokenOf(which) !== parameters[which]) this.fill(which, parameters[which]);
    const why = await this.request.ask("/prompt/why.json", parameters, { busy: this.result });
    if (why !== null) this.show(why);
    else if (question === this.question) {
      this.question = null; // it failed, and may be asked again
      replace(this.result);
    }
  }

  fill(which, text) {
    this.ids[which] = null;
    this.boxes[which].value = text;
  }

  prefill(reading, link) {
    if (link.a && link.b) return;
    const order = reading.distribution;
    if (order.length > 1) BOTH.forEach((which, i) => this.choose(which, order[i]));
  }

  show(why) {
    BOTH.forEach((which) => {
      if (this.page.link[which] === `#${why[which].id}`) this.choose(which, why[which]);
    });
    const { a, b, difference } = why;
    const ahead = h("p", token(a.token), difference >= 0 ? " is ahead of " : " is behind ", token(b.token), " by ",
      h("strong", real(Math.abs(difference))), ", the difference of their logits.");
    replace(this.result, ahead, why.note && h("p.note", why.note),
      h("h3", "Memories with the largest push"), pushLegend(a, b), this.memories(why),
      h("h3", "Push of each layer"), layerPushes(why));
  }

  memories({ memories }) {
    const largest = Math.max(...memories.map(({ push }) => Math.abs(push)), 1e-9);
    const rows = memories.map(({ memory, coefficient, push, promotes }) => h("tr",
      h("th", { scope: "row" }, weightedMemory(memory, coefficient)), h("td", pushBar(push, largest)),
      h("td.change-buttons", changeButtons(this.page, memory)), h("td", promoted(promotes, coefficient))));
    const head = headRow(["Memory", "Push", "Change", "Promoted tokens"]);
    return h("div.own-scroll", h("table.prompt-table.pushes.stacked", head, h("tbody", rows)));
  }
}

function pushLegend(a, b) {
  const towards = (side, { token: text }) => [h(`span.push-key.${side}`), " towards ", token(text)];
  return h("p.soft.push-legend", towards("toward-b", b), " · ", towards("toward-a", a));
}

function layerPushes({ layers, start, bias }) {
  const pushes = [...layers.flatMap(({ ff, rest }) => [ff, rest]), start, bias];
  const largest = Math.max(...pushes.map((push) => Math.abs(push ?? 0)), 1e-9);
  const cell = (push) => h("td", push === null ? "" : pushBar(push, largest));
  const row = (head, ff, rest) => h("tr", h("th", { scope: "row" }, head), cell(ff), cell(rest));
  const rows = layers.map(({ layer, ff, rest }) => row(h("a", { href: layerLink(layer) }, `L${layer}`), ff, rest));
  return h("div.own-scroll.tall", { tabindex: "0", role: "region", "aria-label": "Push of every layer" },
    h("table.prompt-table.pushes", headRow(["Layer", "Feed-forward", "Rest (attention)"]),
      h("tbody", row("Embedding", null, start), rows, row("Biases", null, bias))));
}
