// Annotation by people: patterns in the triggers of a sample of memories, one memory after another.
import { getJson } from "./requests.js";
import { AnnotateFigure } from "./annotate_figure.js";
import { annotateKey, keyLine } from "./annotate_keys.js";
import { AnnotateSheet, sheetPath } from "./annotate_sheet.js";
import { append, bdi, h, replace, whole } from "./dom.js";
import { withQuery } from "./links.js";
import { term } from "./terms.js";

const NAME_KEY = "ffscope-annotator"; // in local storage

export async function annotatePage(place, _, about) {
  document.title = "Annotate · ffscope";
  append(place, [h("h1", "Annotate")]);
  const parameters = annotateParameters();
  if (parameters.annotator) await beginAnnotating(place, parameters, about);
  else await askName(place, parameters);
}

function annotateParameters() {
  const query = new URLSearchParams(location.search);
  return Object.fromEntries(["annotator", "memory", "sample", "seed"].map((name) => [name, query.get(name) ?? ""]));
}

function rememberedName() {
  try {
    return localStorage.getItem(NAME_KEY) ?? "";
  } catch {
    return ""; // the browser blocks local storage
  }
}

function rememberName(name) {
  try {
    localStorage.setItem(NAME_KEY, name);
  } catch {
    // the name is asked for again next time
  }
}

async function askName(place, parameters) {
  const { sample, seed } = parameters;
  const { people, memories } = await getJson("/annotate.json", { sample, seed });
  const name = h("input", { id: "annotator", value: rememberedName(), required: true, maxlength: "100", autocomplete: "nickname" });
  const submit = (event) => {
    event.preventDefault();
    location.href = withQuery("/annotate", { ...parameters, annotator: name.value.trim() });
  };
  const count = Array.isArray(memories) ? memories.length : memories;
  const annotators = Object.entries(people ?? {});
  append(place, [
    h("p", "Describe what the top ", term("trigger", "triggers"), " of a ", term("memory"), " have in common. ",
      count ? `The sample has ${whole(count)} memories. ` : "", "Your work is saved under your name as you go."),
    h("form.annotator-name", { onsubmit: submit }, h("label", { for: "annotator" }, "Your name"), name,
      h("button.main", { type: "submit" }, "Begin")),
    annotators.length > 0 && h("p.soft", "Memories done so far: ", annotatorLinks(annotators, parameters)),
  ]);
  name.focus();
}

function annotatorLinks(annotators, parameters) {
  const address = (annotator) => withQuery("/annotate", { ...parameters, annotator });
  return annotators.map(([name, done], i) => [i > 0 && ", ", h("a", { href: address(name) }, bdi(name)), ` ${whole(done)}`]);
}

async function beginAnnotating(place, parameters, about) {
  const { annotator, sample, seed } = parameters;
  let overview;
  try {
    overview = await getJson("/annotate.json", { annotator, sample, seed });
  } catch (error) {
    append(place, [h("p.problem", { role: "alert" }, bdi(error.message))]);
    await askName(place, { ...parameters, annotator: "" }); // another name may be accepted
    return;
  }
  rememberName(overview.annotator);
  const page = new AnnotatePage(place, parameters, { ...overview, study: about.id });
  addEventListener("popstate", () => page.open(annotateParameters().memory || page.firstOpen()));
  await page.start();
}

class AnnotatePage {
  constructor(place, parameters, overview) {
    const { annotator, study, memories, people } = overview;
    Object.assign(this, { parameters, annotator, study, memories, people, sheet: null, turn: 0 });
    this.savers = new Set();
    this.progress = h("progress", { "aria-label": "Memories done" });
    this.count = h("strong");
    this.others = h("span.soft");
    this.status = h("span.quiet.saved", { role: "status" });
    this.title = h("h2");
    this.sheetPlace = h("div");
    this.list = h("div.sample");
    this.figure = new AnnotateFigure(this.annotator);
    const changeName = h("a", { href: withQuery("/annotate", { ...parameters, annotator: "", memory: "" }) }, "not you?");
    append(place, [h("p.annotate-bar", bdi(annotator), changeName, this.progress, this.count, this.others),
      h("details.all-memories", h("summary", "All memories in the sample"), this.list), this.figure.element,
      h("div.sheet-title", this.title, this.status), keyLine(), this.sheetPlace]);
    this.listen();
    this.refresh();
  }

  listen() {
    document.addEventListener("keydown", (event) => this.sheet && annotateKey(event, this.sheet));
    addEventListener("pagehide", () => this.savers.forEach((saver) => saver.leave()));
    document.addEventListener("visibilitychange", () => document.hidden && this.savers.forEach((saver) => saver.flush()));
  }

  async start() {
    if (this.memories.length === 0) {
      replace(this.sheetPlace, h("p.empty", "The sample has no memories. For a larger sample, open /annotate?sample=10"));
      return;
    }
    if (this.memories.every(({ done }) => done)) this.figure.unfold();
    await this.open(this.parameters.memory || this.firstOpen());
  }

  // Where to resume: at the first draft, else at the first memory that is not done, else at the first.
  firstOpen() {
    const task = this.memories.find(({ draft, done }) => draft && !done) ?? this.memories.find(({ done }) => !done);
    return (task ?? this.memories[0]).memory;
  }

  address(memory) {
    return withQuery("/annotate", { ...this.parameters, annotator: this.annotator, memory });
  }

  async go(memory) {
    history.pushState(null, "", this.address(memory));
    await this.open(memory);
  }

  async open(memory) {
    const turn = ++this.turn;
    this.sheet?.saver.flush();
    this.sheet = null;
    history.replaceState(null, "", this.address(memory));
    try {
      const data = await getJson(`${sheetPath(memory)}.json`, { annotator: this.annotator });
      if (turn !== this.turn) return;
      this.sheet = new AnnotateSheet(this, data);
      this.savers.add(this.sheet.saver);
      this.status.textContent = "";
      replace(this.sheetPlace, this.sheet.element);
      this.sheet.focus();
      scrollTo(0, 0);
    } catch (error) {
      if (turn === this.turn) replace(this.sheetPlace, h("p.problem", { role: "alert" }, bdi(error.message)));
    }
    this.refresh(memory);
  }

  saved(sentence, memory) {
    this.status.textContent = sentence;
    const task = this.taskOf(memory);
    if (task && !task.draft) {
      task.draft = true;
      this.refresh(this.sheet?.memory);
    }
  }

  taskOf(memory) {
    return this.memories.find((task) => task.memory === memory);
  }

  async finished(memory) {
    const task = this.taskOf(memory);
    if (task) Object.assign(task, { done: true, draft: false });
    this.figure.redraw();
    if (this.memories.every(({ done }) => done)) {
      this.refresh(memory);
      this.figure.unfold();
      this.status.textContent = "All memories in the sample are done.";
    } else await this.skip();
  }

  // The next memory that is not done, wrapping around at the end of the list.
  skip() {
    const at = this.memories.findIndex(({ memory }) => memory === this.sheet?.memory);
    const others = [...this.memories.slice(at + 1), ...this.memories.slice(0, Math.max(at, 0))];
    const next = others.find(({ done }) => !done) ?? others[0];
    return next && this.go(next.memory);
  }

  back() {
    const at = this.memories.findIndex(({ memory }) => memory === this.sheet?.memory);
    return at > 0 && this.go(this.memories[at - 1].memory);
  }

  refresh(memory = this.sheet?.memory) {
    const done = this.memories.filter((task) => task.done).length;
    this.progress.max = Math.max(1, this.memories.length);
    this.progress.value = done;
    this.count.textContent = `${whole(done)} of ${whole(this.memories.length)} done`;
    const others = Object.entries(this.people ?? {}).filter(([name]) => name !== this.annotator);
    const counts = others.map(([name, number], i) => [i > 0 && ", ", bdi(name), ` ${whole(number)}`]);
    replace(this.others, others.length > 0 && ["Others: ", counts]);
    replace(this.title, memory ?? "", this.taskOf(memory)?.done ? h("span.done-mark", " ✓ done") : null);
    replace(this.list, this.layers(memory));
  }

  layers(memory) {
    const byLayer = Map.groupBy ? Map.groupBy(this.memories, layerOf) : groupedByLayer(this.memories);
    const line = ([layer, tasks]) => h("p", h("span.soft", `${layer} `), tasks.map((task) => this.entry(task, memory)));
    return Array.from(byLayer, line);
  }

  entry({ memory, done, draft }, current) {
    const open = (event) => {
      event.preventDefault();
      this.go(memory);
    };
    const state = done ? "done" : draft ? "draft" : "not done";
    return [h("a", { href: this.address(memory), onclick: open, title: state, "aria-current": memory === current ? "true" : null },
      memory, done ? " ✓" : draft ? " …" : ""), " "];
  }
}

const layerOf = ({ memory }) => memory.split(".")[0];

function groupedByLayer(memories) {
  const groups = new Map();
  for (const task of memories) groups.set(layerOf(task), [...(groups.get(layerOf(task)) ?? []), task]);
  return groups;
}
