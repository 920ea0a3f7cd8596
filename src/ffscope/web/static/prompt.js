// A text of one's own, read layer by layer, with memories switched off or changed as one likes.
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
import { needsModel } from "./widgets.js";

const EXAMPLES = ["The capital of France is", "The company was founded in", "She opened the door and saw that"];

export async function promptPage(place, data, about) {
  document.title = "Prompt · ffscope";
  append(place, [h("h1", "Prompt")]);
  if (!about.model) {
    append(place, [h("p.empty", "A text can be read, and memories switched off in it, by the model itself. ", needsModel(about))]);
    return;
  }
  const page = new PromptPage(place, about);
  addEventListener("popstate", () => page.restore());
  page.restore();
}

class PromptPage {
  constructor(place, about) {
    this.about = about;
    this.link = readPromptLink(this.about.parameters);
    this.reading = null;
    this.gridAsked = null;
    this.request = new ModelRequest("prompt");
    this.interventions = new InterventionsPanel(this);
    this.parts = [new PromptGrid(this), new PromptDistribution(this), new PromptSteps(this)];
    this.memories = new PromptMemories(this);
    this.why = new PromptWhy(this);
    this.words = new PromptText(this);
    const examples = EXAMPLES.map((text) => h("li", h("a", { href: promptAddress({ text }) }, text)));
    this.examples = h("div", h("p.soft", "For example:"), h("ul.prompt-examples", examples));
    const [grid, distribution, steps] = this.parts.map((part) => part.element);
    const first = h("div.prompt-first", grid, distribution);
    const pair = h("div.prompt-pair", this.words.element, this.why.element);
    this.results = h("div", { hidden: true }, first, this.memories.element, pair, steps);
    append(place, [this.form(), this.request.status, this.request.trouble, this.examples]);
    append(place, [this.interventions.element, this.interventions.effect, this.results]);
  }

  form() {
    this.text = h("textarea", { id: "prompt-text", rows: 3, spellcheck: "false", placeholder: "Write the beginning of a text" });
    this.text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.submit(event);
    });
    return h("form.prompt-form", { onsubmit: (event) => this.submit(event) }, h("label", { for: "prompt-text" }, "Text"), this.text,
      h("div.prompt-send", h("button.main", { type: "submit" }, "Read"), h("span.soft.prompt-keys", "or Ctrl-Enter")));
  }

  submit(event) {
    event.preventDefault();
    const text = this.text.value;
    if (!text) {
      this.request.refuse("There is nothing to read yet. Write a text first.");
      this.text.focus();
      return;
    }
    // What was asked at a position of the old text has no meaning in the new one; interventions and the length of the text have.
    const fresh = text === this.link.text ? {} : { position: "", a: "", b: "" };
    this.push({ ...fresh, text });
  }

  // A change that the Back button takes back, and one that it does not.
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
    // What was asked for last, which may still be under way.
    const asked = this.link.position === "" ? this.reading?.position : Number(this.link.position);
    if (position !== asked) this.change({ position: String(position), a: "", b: "" });
  }

  // Where the interventions hold from now on; "" is every position.
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
      this.request.forget(this.results);
      this.results.hidden = true;
      return;
    }
    const asking = this.request.getJson("/prompt.json", this.question(link), { busy: this.results });
    this.why.read(link);
    this.words.read(link);
    const turn = this.request.turn;
    const reading = await asking;
    if (reading !== null) this.show(reading, link);
    else if (turn === this.request.turn) this.results.hidden = true; // the old results are of another question
  }

  // The grid is what takes longest, and another position leaves it as it is.
  question(link) {
    const asked = promptQuestion(link);
    return gridQuestion(link) === this.gridAsked ? { ...asked, of: "none" } : asked;
  }

  show(reading, link) {
    if (reading.grid === null) {
      const { grid, of, spellings } = this.reading;
      Object.assign(reading, { grid, of, spellings: { ...spellings, ...reading.spellings } });
    }
    this.gridAsked = gridQuestion(link);
    this.reading = reading;
    this.results.hidden = false;
    this.interventions.show(link, reading);
    for (const part of this.parts) part.show(reading, gridQuestion(link));
    this.memories.read(link);
    this.why.prefill(reading, link);
    this.words.limit();
  }
}
