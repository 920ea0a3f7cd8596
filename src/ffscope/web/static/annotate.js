// People look for patterns in the prefixes of a sample of memories, one memory after another.
import { ask } from "./ask.js";
import { AnnotateFigure } from "./annotate_figure.js";
import { annotateKey, keyLine } from "./annotate_keys.js";
import { AnnotateSheet, sheetPath } from "./annotate_sheet.js";
import { append, bdi, h, replace, whole } from "./dom.js";
import { withQuery } from "./links.js";

const REMEMBERED = "ffscope-annotator";

export async function annotatePage(place, twin, about) {
  document.title = "Annotate · ffscope";
  append(place, [h("h1", "Annotate")]);
  const asked = askedOfAnnotate();
  if (asked.annotator) await beginAnnotating(place, asked, about);
  else await askWho(place, asked);
}

function askedOfAnnotate() {
  const query = new URLSearchParams(location.search);
  return Object.fromEntries(["annotator", "memory", "sample", "seed"].map((name) => [name, query.get(name) ?? ""]));
}

function rememberedName() {
  try {
    return localStorage.getItem(REMEMBERED) ?? "";
  } catch {
    return ""; // a browser that keeps nothing
  }
}

function rememberName(name) {
  try {
    localStorage.setItem(REMEMBERED, name);
  } catch {
    // then it is asked for again
  }
}

async function askWho(place, asked) {
  const { people, memories } = await ask("/annotate.json", { sample: asked.sample, seed: asked.seed });
  const name = h("input", { id: "annotator", value: rememberedName(), required: true, maxlength: "100", autocomplete: "nickname" });
  const go = (event) => {
    event.preventDefault();
    location.href = withQuery("/annotate", { ...asked, annotator: name.value.trim() });
  };
  const count = Array.isArray(memories) ? memories.length : memories;
  const known = Object.entries(people ?? {});
  append(place, [
    h("p", "Look at the prefixes that trigger a memory most, and say what they share. ",
      count ? `The sample has ${whole(count)} memories. ` : "", "Everything is saved as you go, under your name."),
    h("form.who", { onsubmit: go }, h("label", { for: "annotator" }, "Your name"), name,
      h("button.main", { type: "submit" }, "Begin")),
    known.length > 0 && h("p.soft", "So far: ", peopleLinks(known, asked)),
  ]);
  name.focus();
}

function peopleLinks(known, asked) {
  const address = (annotator) => withQuery("/annotate", { ...asked, annotator });
  return known.map(([name, done], i) => [i > 0 && ", ", h("a", { href: address(name) }, bdi(name)), ` ${whole(done)}`]);
}

async function beginAnnotating(place, asked, about) {
  let overview;
  try {
    overview = await ask("/annotate.json", { annotator: asked.annotator, sample: asked.sample, seed: asked.seed });
  } catch (error) {
    append(place, [h("p.problem", { role: "alert" }, bdi(error.message))]);
    await askWho(place, { ...asked, annotator: "" }); // under another name it may go
    return;
  }
  rememberName(overview.annotator);
  const desk = new AnnotateDesk(place, asked, { ...overview, study: about.id });
  addEventListener("popstate", () => desk.open(askedOfAnnotate().memory || desk.firstOpen()));
  await desk.start();
}

class AnnotateDesk {
  constructor(place, asked, overview) {
    const { annotator, study, memories, people } = overview;
    Object.assign(this, { asked, annotator, study, memories, people, sheet: null, turn: 0 });
    this.savers = new Set();
    this.progress = h("progress", { "aria-label": "Memories done" });
    this.count = h("strong");
    this.others = h("span.soft");
    this.status = h("span.quiet.saved", { role: "status" });
    this.title = h("h2");
    this.sheetPlace = h("div");
    this.list = h("div.sample");
    this.figure = new AnnotateFigure(this.annotator);
    const another = h("a", { href: withQuery("/annotate", { ...asked, annotator: "", memory: "" }) }, "not you?");
    append(place, [h("p.annotate-bar", bdi(annotator), another, this.progress, this.count, this.others),
      h("details.all-memories", h("summary", "All memories of the sample"), this.list), this.figure.element,
      h("div.sheet-title", this.title, this.status), keyLine(), this.sheetPlace]);
    this.listen();
    this.refresh();
  }

  listen() {
    document.addEventListener("keydown", (event) => this.sheet && annotateKey(event, this.sheet));
    addEventListener("pagehide", () => this.savers.forEach((saver) => saver.leave()));
    document.addEventListener("visibilitychange", () => document.hidden && this.savers.forEach((saver) => saver.rest()));
  }

  async start() {
    if (this.memories.length === 0) {
      replace(this.sheetPlace, h("p.empty", "The sample has no memories. A larger sample can be asked for: /annotate?sample=10"));
      return;
    }
    if (this.memories.every((one) => one.done)) this.figure.unfold();
    await this.open(this.asked.memory || this.firstOpen());
  }

  // Where to go on: what was begun and not finished, else the first that is not done, else the first.
  firstOpen() {
    const open = this.memories.find((one) => one.draft && !one.done) ?? this.memories.find((one) => !one.done);
    return (open ?? this.memories[0]).memory;
  }

  address(memory) {
    return withQuery("/annotate", { ...this.asked, annotator: this.annotator, memory });
  }

  async go(memory) {
    history.pushState(null, "", this.address(memory));
    await this.open(memory);
  }

  async open(memory) {
    const turn = ++this.turn;
    this.sheet?.saver.rest();
    this.sheet = null;
    history.replaceState(null, "", this.address(memory));
    try {
      const twin = await ask(`${sheetPath(memory)}.json`, { annotator: this.annotator });
      if (turn !== this.turn) return;
      this.sheet = new AnnotateSheet(this, twin);
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
    const one = this.known(memory);
    if (one && !one.draft) {
      one.draft = true;
      this.refresh(this.sheet?.memory);
    }
  }

  known(memory) {
    return this.memories.find((one) => one.memory === memory);
  }

  async finished(memory) {
    const one = this.known(memory);
    if (one) Object.assign(one, { done: true, draft: false });
    this.figure.again();
    if (this.memories.every((other) => other.done)) {
      this.refresh(memory);
      this.figure.unfold();
      this.status.textContent = "All memories of the sample are done.";
    } else await this.skip();
  }

  // The next one that is not done, round the end of the list if need be.
  skip() {
    const at = this.memories.findIndex((one) => one.memory === this.sheet?.memory);
    const round = [...this.memories.slice(at + 1), ...this.memories.slice(0, Math.max(at, 0))];
    const next = round.find((one) => !one.done) ?? round[0];
    return next && this.go(next.memory);
  }

  back() {
    const at = this.memories.findIndex((one) => one.memory === this.sheet?.memory);
    return at > 0 && this.go(this.memories[at - 1].memory);
  }

  refresh(memory = this.sheet?.memory) {
    const done = this.memories.filter((one) => one.done).length;
    this.progress.max = Math.max(1, this.memories.length);
    this.progress.value = done;
    this.count.textContent = `${whole(done)} of ${whole(this.memories.length)} done`;
    const others = Object.entries(this.people ?? {}).filter(([name]) => name !== this.annotator);
    const told = others.map(([name, number], i) => [i > 0 && ", ", bdi(name), ` ${whole(number)}`]);
    replace(this.others, others.length > 0 && ["Others: ", told]);
    const one = this.known(memory);
    replace(this.title, memory ?? "", one?.done ? h("span.done-mark", " ✓ done") : null);
    replace(this.list, this.layers(memory));
  }

  layers(memory) {
    const byLayer = Map.groupBy ? Map.groupBy(this.memories, layerOf) : groupedByLayer(this.memories);
    const line = ([layer, listed]) => h("p", h("span.soft", `${layer} `), listed.map((one) => this.entry(one, memory)));
    return Array.from(byLayer, line);
  }

  entry({ memory, done, draft }, current) {
    const open = (event) => {
      event.preventDefault();
      this.go(memory);
    };
    const state = done ? "done" : draft ? "begun" : "not done";
    return [h("a", { href: this.address(memory), onclick: open, title: state, "aria-current": memory === current ? "true" : null },
      memory, done ? " ✓" : draft ? " …" : ""), " "];
  }
}

const layerOf = ({ memory }) => memory.split(".")[0];

function groupedByLayer(memories) {
  const groups = new Map();
  for (const one of memories) groups.set(layerOf(one), [...(groups.get(layerOf(one)) ?? []), one]);
  return groups;
}
