// Interventions on memories or whole layers while the model reads the text: set to zero, scale, or set to a number.
import { append, bdi, h, real, replace, visibleText, share, token } from "./dom.js";
import { layerLink, memoryLink } from "./links.js";
import { CHANGE_KINDS, listInterventions, memoryOrLayer } from "./prompt_link.js";
import { tinyButton } from "./prompt_parts.js";
import { copyButton } from "./widgets.js";

const CHANGES = { zero: "switch off", scale: "scale by", set: "set to" };
const CHANGES_DONE = { zero: "switched off", scale: "scaled by", set: "set to" };
const POSITIONS = "\\s*-?\\d{1,9}\\s*(,\\s*-?\\d{1,9}\\s*)*";

// Whether two targets (memories or whole layers) have a memory in common.
function overlaps(name, other) {
  return name === other || name.startsWith(`${other}.`) || other.startsWith(`${name}.`);
}

function withoutTarget(link, name) {
  return listInterventions(link).filter((entry) => !overlaps(entry.name, name));
}

// The list with a new intervention, which replaces those on the same memories.
function changedList(link, intervention) {
  return [...withoutTarget(link, intervention.name), intervention];
}

// Two small buttons: switch a memory off (or undo the intervention on it or its layer), and "…" to scale or set it.
export function changeButtons(page, memory) {
  const current = listInterventions(page.link).find(({ name }) => overlaps(name, memory));
  const off = () => page.intervene(changedList(page.link, { name: memory, change: "zero", number: null }));
  const undo = () => page.intervene(withoutTarget(page.link, current.name));
  const first = current
    ? tinyButton("undo", `Undo the change of ${current.name}`, undo) : tinyButton("off", `Switch ${memory} off`, off);
  return h("span.change-buttons", first, tinyButton("…", `Scale or set ${memory}`, () => askNumber(page, memory)));
}

function kindChoice(choices) {
  const options = choices.map((change) => h("option", { value: change }, CHANGES[change]));
  return h("select", { "aria-label": "Kind of change" }, options);
}

function numberBox() {
  const bounds = { step: "any", min: "-1000000", max: "1000000" };
  return h("input.number-box", { type: "number", ...bounds, value: "2", required: true, "aria-label": "Number" });
}

function askNumber(page, memory) {
  const kind = kindChoice(["scale", "set"]);
  const number = numberBox();
  const dialog = h("dialog.change", { "aria-label": `Change ${memory}`, onclose: () => dialog.remove() });
  const apply = (event) => {
    event.preventDefault();
    dialog.close();
    page.intervene(changedList(page.link, { name: memory, change: kind.value, number: String(Number(number.value)) }));
  };
  append(dialog, [h("form", { onsubmit: apply }, h("p", h("strong", memory)), h("p.change-row", kind, number),
    h("p.soft", "Scale multiplies the coefficient by the number; set replaces the coefficient by it. ",
      "Both apply at the positions of the interventions."),
    h("p.change-row", h("button.main", { type: "submit" }, "Apply"),
      h("button", { type: "button", onclick: () => dialog.close() }, "Cancel")))]);
  document.body.append(dialog);
  dialog.showModal();
  number.select();
}

export class InterventionsPanel {
  constructor(page) {
    this.page = page;
    this.effect = h("p.effect", { role: "status" }); // sticky, so that it stays visible while the page scrolls
    this.list = h("ul.changed");
    this.clear = h("button", { type: "button", onclick: () => page.intervene([]) }, "Clear all");
    const rows = h("div.add-row", this.addForm(), this.positionsForm(), this.clear);
    this.writing = h("details.write-edit", { hidden: true });
    this.element = h("section.interventions", h("h2", "Interventions"), this.list, rows, this.writing);
  }

  addForm() {
    const label = "Memory or whole layer";
    const name = h("input.memory-box", { placeholder: "L3.17 or L3", "aria-label": label, required: true, spellcheck: "false" });
    name.autocomplete = "off";
    const kind = kindChoice(CHANGE_KINDS);
    const number = numberBox();
    const follow = () => {
      number.hidden = number.disabled = kind.value === "zero";
    };
    kind.addEventListener("change", follow);
    name.addEventListener("input", () => name.setCustomValidity(""));
    follow();
    const add = (event) => {
      event.preventDefault();
      const { target, wrong } = this.parseTarget(name.value);
      name.setCustomValidity(wrong ?? "");
      if (wrong) name.reportValidity();
      else this.add({ name: target, change: kind.value, number: number.disabled ? null : String(Number(number.value)) }, name);
    };
    return h("form.add", { onsubmit: add }, h("span.soft", "Add"), name, kind, number, h("button", { type: "submit" }, "Add"));
  }

  add(intervention, box) {
    box.value = "";
    this.page.intervene(changedList(this.page.link, intervention));
  }

  // Where the interventions apply: at every token, or at the listed positions.
  positionsForm() {
    const title = "Positions of tokens: 0 is the first (BOS included), -1 the last; for example 0,3,-1. Empty: every token.";
    this.positions = h("input.positions-box", { placeholder: "every token", pattern: POSITIONS, title, spellcheck: "false" });
    this.positions.autocomplete = "off";
    const choose = (positions) => this.page.choosePositions(positions.replaceAll(/\s/g, ""));
    const submit = (event) => {
      event.preventDefault();
      choose(this.positions.value);
    };
    const here = () => this.page.reading && choose(String(this.page.reading.position));
    return h("form.add", { onsubmit: submit }, h("label.soft", "At positions ", this.positions),
      h("button", { type: "submit" }, "Apply"), h("button", { type: "button", onclick: here }, "Only the selected token"));
  }

  // Parses the name of a memory or layer: {target}, or {wrong} with an error message.
  parseTarget(text) {
    const { layers, memories } = this.page.about;
    const match = /^\s*[Ll]?\s*(\d{1,6})(?:\s*[.:/ ]\s*(\d{1,9}))?\s*$/.exec(text);
    if (match === null) return { wrong: "Write a memory as L3.17 (layer and index), or a whole layer as L3." };
    const layer = Number(match[1]);
    if (layer >= layers) return { wrong: `There is no layer ${layer}. The layers are 0 to ${layers - 1}.` };
    const last = memories[layer] - 1;
    if (match[2] !== undefined && Number(match[2]) > last) {
      return { wrong: `There is no memory ${Number(match[2])} in layer ${layer}. Its memories are 0 to ${last}.` };
    }
    return { target: memoryOrLayer(match[1], match[2]) };
  }

  show(link, reading) {
    const list = listInterventions(link);
    this.element.hidden = this.effect.hidden = link.text === "" && list.length === 0;
    this.effect.classList.toggle("some", list.length > 0);
    this.positions.value = link.positions;
    replace(this.effect, list.length ? [changedWords(list, link.positions), reading ? [": ", effectOf(reading)] : " …"]
      : "No memory is changed.");
    replace(this.list, list.map((intervention) => this.item(intervention, reading, list)));
    this.clear.hidden = list.length === 0;
    this.showCommand(reading?.write ?? null);
  }

  // How to write the interventions into the model's weights. The command, and so the answer, belongs to these interventions.
  showCommand(write) {
    this.writing.hidden = write === null;
    if (write === null) return;
    const { command, why } = write;
    const introduction = "This command writes the interventions into a copy of the model's weights, with a record to undo it.";
    const words = command === null ? h("p", why)
      : [h("p.soft", introduction), h("div.command", h("code", visibleText(command)), copyButton(command))];
    replace(this.writing, h("summary", "Write this edit…"), words);
  }

  item(intervention, reading, list) {
    const { name, change, number } = intervention;
    const coefficient = reading?.interventions.find((applied) => applied.name === name)?.coefficient ?? null;
    const effect = `${CHANGES_DONE[change]} ${number === null ? "" : visibleText(number.slice(0, 20))}`;
    const remove = () => this.page.intervene(list.filter((other) => other !== intervention));
    return h("li.chip", targetLink(name), ` ${effect}`,
      coefficient !== null && h("span.soft", ` (its coefficient was ${real(coefficient, 2)})`),
      tinyButton("×", `Remove ${visibleText(name.slice(0, 80))}`, remove));
  }
}

function targetLink(name) {
  if (/^L\d+\.\d+$/.test(name)) return h("a", { href: memoryLink(name) }, name);
  if (/^L\d+$/.test(name)) return h("a", { href: layerLink(name.slice(1)) }, `all of ${name}`);
  return bdi(name.slice(0, 80));
}

function changedWords(list, positions) {
  const layers = list.filter(({ name }) => !name.includes(".")).length;
  const counted = (count, word, words) => count > 0 && `${count} ${count === 1 ? word : words}`;
  const parts = [counted(list.length - layers, "memory", "memories"), counted(layers, "layer", "layers")].filter(Boolean);
  const where = positions ? ` at position${positions.includes(",") ? "s" : ""} ${visibleText(positions.slice(0, 60))}` : "";
  return `${parts.join(" and ")} ${list.length === 1 ? "is" : "are"} changed${where}`;
}

// The change of the top token's probability, and the new top token.
function effectOf({ distribution }) {
  const first = distribution.find((row) => row.before_rank === 1);
  const now = distribution.find((row) => row.after_rank === 1);
  const change = (row) => [token(row.token), ` ${share(row.before)} → ${share(row.after)}`];
  if (!first || !now || first.after === null) return "";
  return first === now ? [change(first), "; it stays the top token"] : [change(first), "; the top token is now ", change(now)];
}
