// The prompt page: the model's predictions for a text, layer by layer, with interventions on memories.
import { append, h } from "./dom.js";
import { InterventionsPanel } from "./interventions.js";
import { ModelRequest } from "./prompt_request.js";
import { PromptDistribution } from "./prompt_distribution.js";
import { PromptGrid } from "./prompt_grid.js";
import { gridQuestion, linkInterventions, promptAddress, promptQuestion, readPromptLink } from "./prompt_link.js";
import { PromptMemories } from "./prompt_memories.js";
import { PromptSteps } from "./prompt_steps.js";
import { PromptText } from "./prompt_text.js";
import { PromptWhy } from "./prompt_why.js";
import { term } from "./terms.js";
import { needsModel } from "./widgets.js";

const EXAMPLES = ["The capital of France is", "The company was founded in", "She opened the door and saw that"];

export async function promptPage(place, _, about) {
  document.title = "Prompt · ffscope";
  append(place, [h("h1", "Prompt"), promptIntroduction()]);
  if (!about.model) {
    append(place, [h("p.empty", needsModel(about))]);
    return;
  }
  const page = new PromptPage(place, about);
  addEventListener("popstate", () => page.restore());
  page.restore();
}

function promptIntroduction() {
  return h("p.quiet", "What each layer predicts for your text, which ", term("memory", "memories"), " contribute to it, ",
    "and what changes when you switch memories off or set their ", term("coefficient", "coefficients"), ".");
}

class PromptPage {
  constructor(place, about) {
    this.about = about;
    this.link = readPromptLink(this.about.parameters);
    this.reading = null;
    this.gridOfQuestion = null;
    this.request = new ModelRequest("prompt");
    this.interventions = new InterventionsPanel(this);
    this.parts = [new PromptGrid(this), new PromptDistribution(this), new PromptSteps(this)];
    this.memories = new PromptMemories(this);
    this.why = new PromptWhy(this);
    this.generated = new PromptText(this);
    const examples = EXAMPLES.map((text) => h("li", h("a", { href: promptAddress({ text }) }, text)));
    this.examples = h("div", h("p.soft", "For example:"), h("ul.prompt-examples", examples));
    const [grid, distribution, steps] = this.parts.map((part) => part.element);
    const first = h("div.prompt-first", grid, distribution);
    const pair = h("div.prompt-pair", this.generated.element, this.why.element);
    this.results = h("div", { hidden: true }, first, this.memories.element, pair, steps);
    append(place, [this.form(), this.request.status, this.request.error, this.examples]);
    append(place, [this.interventions.element, this.interventions.effect, this.results]);
  }

  form() {
    this.text = h("textarea", { id: "prompt-text", rows: 3, spellcheck: "false", placeholder: "Type the beginning of a text" });
    this.text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.submit(event);
    });
    return h("form.prompt-form", { onsubmit: (event) => this.submit(event) }, h("label", { for: "prompt-text" }, "Text"), this.text,
      h("div.prompt-send", h("button.main", { type: "submit" }, "Run"), h("span.soft.prompt-keys", "or Ctrl-Enter")));
  }

  submit(event) {
    event.preventDefault();
    const text = this.text.value;
    if (!text) {
      this.request.showError("There is no text yet. Type some text first.");
      this.text.focus();
      return;
    }
    // Position and compared tokens belong to the old text; interventions and the length of generated text are kept.
    const reset = text === this.link.text ? {} : { position: "", a: "", b: "" };
    this.push({ ...reset, text });
  }

  // `push` adds a history entry, which the Back button undoes; `change` does not.
  push(changes) {
    Object.assign(this.link, changes);
    history.pushState(null, "", promptAddress(this.link));
    this.read();
  }

  change(changes) {
    this.keep(changes);
    this.read();
  }

  keep(changes) {
    Object.assign(this.link, changes);
    history.replaceState(null, "", promptAddress(this.link));
  }

  choosePosition(position) {
    // The position requested last, whose answer may still be pending.
    const current = this.link.position === "" ? this.reading?.position : Number(this.link.position);
    if (position !== current) this.change({ position: String(position), a: "", b: "" });
  }

  // Sets the positions of the interventions; "" is every position.
  choosePositions(positions) {
    this.push({ positions });
  }

  intervene(list) {
    this.push(linkInterventions(list));
  }

  restore() {
    this.link = readPromptLink(this.about.parameters);
    this.text.value = this.link.text;
    this.read();
  }

  async read() {
    const link = { ...this.link };
    this.examples.hidden = link.text !== "";
    this.interventions.show(link, null);
    if (link.text === "") {
      this.request.cancel(this.results);
      this.results.hidden = true;
      return;
    }
    const answer = this.request.ask("/prompt.json", this.question(link), { busy: this.results });
    this.why.read(link);
    this.generated.read(link);
    const turn = this.request.turn;
    const reading = await answer;
    if (reading !== null) this.show(reading, link);
    else if (turn === this.request.turn) this.results.hidden = true; // the results shown belong to another question
  }

  // The grid takes longest and does not depend on the position: it is requested only if it changes.
  question(link) {
    const question = promptQuestion(link);
    return gridQuestion(link) === this.gridOfQuestion ? { ...question, of: "none" } : question;
  }

  show(reading, link) {
    if (reading.grid === null) {
      const { grid, of, spellings } = this.reading;
      Object.assign(reading, { grid, of, spellings: { ...spellings, ...reading.spellings } });
    }
    this.gridOfQuestion = gridQuestion(link);
    this.reading = reading;
    this.results.hidden = false;
    this.interventions.show(link, reading);
    for (const part of this.parts) part.show(reading, gridQuestion(link));
    this.memories.read(link);
    this.why.prefill(reading, link);
    this.generated.limit();
  }
}
