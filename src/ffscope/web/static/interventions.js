// What is done to memories, or to whole layers, while the text is read: set to zero, scaled, or set to a number.
import { append, bdi, h, replace, seen, share, token } from "./dom.js";
import { layerLink, memoryLink } from "./links.js";
import { CHANGE_KINDS, listInterventions, memoryOrLayer } from "./prompt_link.js";
import { signedNumber, tinyButton } from "./prompt_parts.js";

const CHANGES = { zero: "switch off", scale: "scale by", set: "set to" };
const DONE = { zero: "switched off", scale: "scaled by", set: "set to" };
const POSITIONS = "\\s*-?\\d{1,9}\\s*(,\\s*-?\\d{1,9}\\s*)*";

// Whether two names, of memories or whole layers, have a memory in common.
function overlaps(name, other) {
  return name === other || name.startsWith(`${other}.`) || other.startsWith(`${name}.`);
}

function withoutTarget(link, name) {
  return listInterventions(link).filter((one) => !overlaps(one.name, name));
}

// The list with one memory or layer changed anew: no memory is changed twice.
function changedList(link, one) {
  return [...withoutTarget(link, one.name), one];
}

// Two small buttons: switch a memory off (or let it be again, with its layer where that is changed), and "…" for a number.
export function changeButtons(desk, memory) {
  const known = listInterventions(desk.link).find((one) => overlaps(one.name, memory));
  const off = () => desk.intervene(changedList(desk.link, { name: memory, change: "zero", number: null }));
  const undo = () => desk.intervene(withoutTarget(desk.link, known.name));
  const first = known ? tinyButton("undo", `Let ${known.name} be again`, undo) : tinyButton("off", `Switch ${memory} off`, off);
  return h("span.twin-buttons", first, tinyButton("…", `Scale or set ${memory}`, () => askNumber(desk, memory)));
}

function kindChoice(choices) {
  const options = choices.map((change) => h("option", { value: change }, CHANGES[change]));
  return h("select", { "aria-label": "What to do with it" }, options);
}

function numberBox() {
  const bounds = { step: "any", min: "-1000000", max: "1000000" };
  return h("input.number-box", { type: "number", ...bounds, value: "2", required: true, "aria-label": "Number" });
}

function askNumber(desk, memory) {
  const kind = kindChoice(["scale", "set"]);
  const number = numberBox();
  const dialog = h("dialog.change", { "aria-label": `Change ${memory}`, onclose: () => dialog.remove() });
  const apply = (event) => {
    event.preventDefault();
    dialog.close();
    desk.intervene(changedList(desk.link, { name: memory, change: kind.value, number: String(Number(number.value)) }));
  };
  append(dialog, [h("form", { onsubmit: apply }, h("p", h("strong", memory)), h("p.change-row", kind, number),
    h("p.soft", "Scale multiplies its coefficient; set puts this number in its place. Both hold where the interventions do."),
    h("p.change-row", h("button.main", { type: "submit" }, "Apply"),
      h("button", { type: "button", onclick: () => dialog.close() }, "Cancel")))]);
  document.body.append(dialog);
  dialog.showModal();
  number.select();
}

export class InterventionsPanel {
  constructor(desk) {
    this.desk = desk;
    this.effect = h("p.effect", { role: "status" }); // stays in sight, beside whatever is switched off
    this.list = h("ul.changed");
    this.clear = h("button", { type: "button", onclick: () => desk.intervene([]) }, "Clear all");
    const rows = h("div.add-row", this.addForm(), this.positionsForm(), this.clear);
    this.element = h("section.interventions", h("h2", "Interventions"), this.list, rows);
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
      const { target, wrong } = this.named(name.value);
      name.setCustomValidity(wrong ?? "");
      if (wrong) name.reportValidity();
      else this.add({ name: target, change: kind.value, number: number.disabled ? null : String(Number(number.value)) }, name);
    };
    return h("form.add", { onsubmit: add }, h("span.soft", "Add"), name, kind, number, h("button", { type: "submit" }, "Add"));
  }

  add(one, name) {
    name.value = "";
    this.desk.intervene(changedList(this.desk.link, one));
  }

  // Where the interventions hold: at every token, or at those that are named.
  positionsForm() {
    const title = "Token numbers, from 0 with BOS or from -1 at the end, such as 0,3,-1. Empty: every token.";
    this.positions = h("input.positions-box", { placeholder: "every token", pattern: POSITIONS, title, spellcheck: "false" });
    this.positions.autocomplete = "off";
    const choose = (positions) => this.desk.choosePositions(positions.replaceAll(/\s/g, ""));
    const submit = (event) => {
      event.preventDefault();
      choose(this.positions.value);
    };
    const here = () => this.desk.reading && choose(String(this.desk.reading.position));
    return h("form.add", { onsubmit: submit }, h("label.soft", "At positions ", this.positions),
      h("button", { type: "submit" }, "Apply"), h("button", { type: "button", onclick: here }, "Only the chosen token"));
  }

  // A memory's or layer's name as people write it, or what is wrong with it.
  named(text) {
    const { layers, memories } = this.desk.about;
    const match = /^\s*[Ll]?\s*(\d{1,6})(?:\s*[.:/ ]\s*(\d{1,9}))?\s*$/.exec(text);
    if (match === null) return { wrong: "Write a memory as L3.17, its layer and its number, or a whole layer as L3." };
    const layer = Number(match[1]);
    if (layer >= layers) return { wrong: `There is no layer ${layer}. The layers are 0 to ${layers - 1}.` };
    const last = memories[layer] - 1;
    if (match[2] !== undefined && Number(match[2]) > last) {
      return { wrong: `There is no memory ${Number(match[2])} in layer ${layer}. Its memories are 0 to ${last}.` };
    }
    return { target: memoryOrLayer(match[1], match[2]) };
  }

  show(link, reading) {
    const listed = listInterventions(link);
    this.element.hidden = this.effect.hidden = link.text === "" && listed.length === 0;
    this.effect.classList.toggle("some", listed.length > 0);
    this.positions.value = link.positions;
    replace(this.effect, listed.length ? [changedWords(listed, link.positions), reading ? [": ", effectOf(reading)] : " …"]
      : "No memory is changed.");
    replace(this.list, listed.map((one) => this.item(one, reading, listed)));
    this.clear.hidden = listed.length === 0;
  }

  item(one, reading, listed) {
    const { name, change, number } = one;
    const coefficient = reading?.interventions.find((applied) => applied.name === name)?.coefficient ?? null;
    const doing = `${DONE[change]} ${number === null ? "" : seen(number.slice(0, 20))}`;
    const remove = () => this.desk.intervene(listed.filter((other) => other !== one));
    return h("li.chip", targetLink(name), ` ${doing}`,
      coefficient !== null && h("span.soft", ` (its coefficient was ${signedNumber(coefficient)})`),
      tinyButton("×", `Remove ${seen(name.slice(0, 80))}`, remove));
  }
}

function targetLink(name) {
  if (/^L\d+\.\d+$/.test(name)) return h("a", { href: memoryLink(name) }, name);
  if (/^L\d+$/.test(name)) return h("a", { href: layerLink(name.slice(1)) }, `all of ${name}`);
  return bdi(name.slice(0, 80));
}

function changedWords(listed, positions) {
  const layers = listed.filter(({ name }) => !name.includes(".")).length;
  const counted = (count, word, words) => count > 0 && `${count} ${count === 1 ? word : words}`;
  const parts = [counted(listed.length - layers, "memory", "memories"), counted(layers, "layer", "layers")].filter(Boolean);
  const where = positions ? ` at position${positions.includes(",") ? "s" : ""} ${seen(positions.slice(0, 60))}` : "";
  return `${parts.join(" and ")} ${listed.length === 1 ? "is" : "are"} changed${where}`;
}

// What became of the most likely token, and which one is now.
function effectOf({ distribution }) {
  const first = distribution.find((row) => row.before_rank === 1);
  const now = distribution.find((row) => row.after_rank === 1);
  const told = (row) => [token(row.token), ` ${share(row.before)} → ${share(row.after)}`];
  if (!first || !now || first.after === null) return "";
  return first === now ? [told(first), "; it stays first"] : [told(first), "; now first is ", told(now)];
}
