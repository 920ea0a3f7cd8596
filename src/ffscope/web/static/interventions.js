// What is done to memories while the text is read: switched off, scaled, or set to a number.
import { append, bdi, h, real, replace, seen, share, token } from "./dom.js";
import { memoryLink } from "./links.js";
import { listInterventions } from "./prompt_link.js";
import { tinyButton } from "./prompt_parts.js";

const CHANGES = { off: "switch off", scale: "scale by", set: "set to" };
const DONE = { off: "switched off", scale: "scaled by", set: "set to" };

const sameAs = (memory) => (one) => one.memory === memory;

function withoutMemory(link, memory) {
  return listInterventions(link).filter((one) => one.memory !== memory);
}

// The list with one memory changed anew: each memory is named once.
function changedList(link, one) {
  return [...withoutMemory(link, one.memory), one];
}

// Two small buttons: switch a memory off (or let it be again), and "…" for a number.
export function changeButtons(desk, memory) {
  const known = listInterventions(desk.link).find(sameAs(memory));
  const off = () => desk.intervene(changedList(desk.link, { memory, change: "off", number: null }));
  const undo = () => desk.intervene(withoutMemory(desk.link, memory));
  const first = known ? tinyButton("undo", `Let ${memory} be again`, undo) : tinyButton("off", `Switch ${memory} off`, off);
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
    desk.intervene(changedList(desk.link, { memory, change: kind.value, number: String(Number(number.value)) }));
  };
  append(dialog, [h("form", { onsubmit: apply }, h("p", h("strong", memory)), h("p.change-row", kind, number),
    h("p.soft", "Scale multiplies its coefficient wherever it is; set puts this number in its place, at every token."),
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
    this.element = h("section.interventions", h("h2", "Interventions"), this.list, h("div.add-row", this.addForm(), this.clear));
  }

  addForm() {
    const name = h("input.memory-box", { placeholder: "L3.17", "aria-label": "Memory", required: true, spellcheck: "false" });
    name.autocomplete = "off";
    const kind = kindChoice(Object.keys(CHANGES));
    const number = numberBox();
    const follow = () => {
      number.hidden = number.disabled = kind.value === "off";
    };
    kind.addEventListener("change", follow);
    name.addEventListener("input", () => name.setCustomValidity(""));
    follow();
    const add = (event) => {
      event.preventDefault();
      const { memory, wrong } = this.named(name.value);
      name.setCustomValidity(wrong ?? "");
      if (wrong) name.reportValidity();
      else this.add({ memory, change: kind.value, number: kind.value === "off" ? null : String(Number(number.value)) }, name);
    };
    return h("form.add", { onsubmit: add }, h("span.soft", "Add"), name, kind, number, h("button", { type: "submit" }, "Add"));
  }

  add(one, name) {
    name.value = "";
    this.desk.intervene(changedList(this.desk.link, one));
  }

  // A memory's name as people write it, or what is wrong with it.
  named(text) {
    const { layers, memories } = this.desk.about;
    const found = /^\s*[Ll]?\s*(\d{1,6})\s*[.:/ ]\s*(\d{1,9})\s*$/.exec(text);
    if (found === null) return { wrong: "Write a memory as L3.17: its layer and its number." };
    const [layer, number] = [Number(found[1]), Number(found[2])];
    if (layer >= layers) return { wrong: `There is no layer ${layer}. The layers are 0 to ${layers - 1}.` };
    const last = memories[layer] - 1;
    if (number > last) return { wrong: `There is no memory ${number} in layer ${layer}. Its memories are 0 to ${last}.` };
    return { memory: `L${layer}.${number}` };
  }

  show(link, reading) {
    const listed = listInterventions(link);
    this.element.hidden = this.effect.hidden = link.text === "" && listed.length === 0;
    this.effect.classList.toggle("some", listed.length > 0);
    const count = listed.length === 1 ? "1 memory is changed" : `${listed.length} memories are changed`;
    replace(this.effect, listed.length ? [count, reading ? [": ", effectOf(reading)] : " …"] : "No memory is changed.");
    replace(this.list, listed.map((one) => this.item(one, reading, listed)));
    this.clear.hidden = listed.length === 0;
  }

  item(one, reading, listed) {
    const { memory, change, number } = one;
    const applied = reading?.interventions.find(sameAs(memory));
    const name = /^L\d+\.\d+$/.test(memory) ? h("a", { href: memoryLink(memory) }, memory) : bdi(memory.slice(0, 80));
    const doing = `${DONE[change]} ${number === null ? "" : seen(number.slice(0, 20))}`;
    const remove = () => this.desk.intervene(listed.filter((other) => other !== one));
    return h("li.chip", name, ` ${doing}`, applied && h("span.soft", ` (was ×${real(applied.coefficient, 2)})`),
      tinyButton("×", `Remove ${seen(memory.slice(0, 80))}`, remove));
  }
}

// What became of the most likely token, and which one is now.
function effectOf({ distribution }) {
  const first = distribution.find((row) => row.before_rank === 1);
  const now = distribution.find((row) => row.after_rank === 1);
  const told = (row) => [token(row.token), ` ${share(row.before)} → ${share(row.after)}`];
  if (!first || !now || first.after === null) return "";
  return first === now ? [told(first), "; it stays first"] : [told(first), "; now first is ", told(now)];
}
