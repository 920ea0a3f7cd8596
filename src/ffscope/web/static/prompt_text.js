// The text that the model goes on with, without and with the interventions.
import { getJson } from "./requests.js";
import { h, replace, visibleText } from "./dom.js";
import { ModelRequest } from "./prompt_request.js";
import { runQuestion } from "./prompt_link.js";
import { realSpaces } from "./prompt_parts.js";
import { rankWord } from "./widgets.js";

const USUAL = 20;

export class PromptText {
  constructor(page) {
    this.page = page;
    this.request = new ModelRequest("prompt-text");
    this.number = h("input.number-box", { type: "number", min: "1", step: "1", value: String(USUAL), required: true });
    this.result = h("div");
    const form = h("form.why-form", { onsubmit: (event) => this.submit(event) },
      h("label", "New tokens ", this.number), h("button", { type: "submit" }, "Go on writing"));
    this.element = h("section", h("h2", "Generated text"), form, this.request.status, this.request.trouble, this.result);
  }

  // A model that has not been loaded says nothing about its limits; after a reading it has been.
  async limit() {
    if (this.number.max) return;
    const live = await getJson("/live.json").catch(() => null);
    const most = live?.limits?.new_tokens;
    if (!most) return;
    this.number.max = String(most);
    if (!this.page.link.new_tokens && this.number.value > most) this.number.value = String(most); // what is offered may be asked
  }

  submit(event) {
    event.preventDefault();
    this.page.keep({ new_tokens: String(Number(this.number.value)) });
    this.read({ ...this.page.link });
  }

  // Asks what the link asks, unless it did so before: another position or lens does not change the text.
  async read(link) {
    const { text, new_tokens: count } = link;
    const asked = { ...runQuestion(link), new_tokens: count };
    const question = count ? JSON.stringify(asked) : null;
    if (question === this.question && question !== null) return;
    this.question = question;
    if (question === null) {
      this.request.forget(this.result);
      replace(this.result);
      return;
    }
    this.number.value = count;
    const said = await this.request.getJson("/prompt/text.json", asked, { busy: this.result });
    if (said !== null) this.show(said, text);
    else if (question === this.question) {
      this.question = null; // it was refused, and may be asked again
      replace(this.result);
    }
  }

  show({ before, after }, text) {
    if (after === null) {
      replace(this.result, generated(text, before, -1));
      return;
    }
    const differs = firstDifference(before, after);
    const words = differs < 0 ? "Both texts are the same." : `The texts part at the ${rankWord(differs + 1)} new token.`;
    const column = (title, tokens) => h("div", h("h3", title), generated(text, tokens, differs));
    replace(this.result, h("p.soft", words),
      h("div.texts", column("Without interventions", before), column("With interventions", after)));
  }
}

function firstDifference(before, after) {
  const longest = Math.max(before.length, after.length);
  for (let i = 0; i < longest; i++) if (before[i] !== after[i]) return i;
  return -1;
}

// Tokens side by side, told apart by their ground; the spaces they begin with are spaces again, so that the text can be read.
function generated(text, tokens, differs) {
  const start = text.length > 200 ? `…${text.slice(-200)}` : text;
  const marked = (text, title) => h("span.piece.differs", { title }, text);
  const pieces = tokens.map((one, i) => {
    const shown = realSpaces(visibleText(one.slice(0, 200)));
    return i === differs ? marked(shown, "the first that differs") : h("span.piece", shown);
  });
  if (differs === tokens.length) pieces.push(marked("∎", "the text ends here"));
  if (pieces.length === 0) pieces.push(h("span.soft", " (nothing: the text ends here)"));
  return h("p.generated", { dir: "auto" }, h("span.soft", visibleText(start)), pieces);
}
