// The user's own text, every token coloured by the memory's coefficient.
import { askModel, isCancelled } from "./requests.js";
import { h, real, replace, share, token, whole } from "./dom.js";
import { isExport } from "./links.js";
import { countOf, cutText, urlParameter, updateUrl, needsModel, plainTable } from "./widgets.js";
import { textTokens } from "./tokens.js";

export function ownTextPart(data, about) {
  if (isExport()) return null;
  const title = h("h2", "Try your own text");
  if (!about.model) return h("section.own", title, h("p.quiet", needsModel(about)));
  const view = {
    data,
    box: h("textarea", { rows: 3, "aria-label": "Your own text", maxLength: 8000, placeholder: "Type some text" }),
    status: h("p.quiet", { role: "status" }),
    place: h("div.own-text"),
  };
  const fromLocation = () => {
    if (view.box.value === urlParameter("text")) return;
    view.box.value = urlParameter("text");
    readOwnText(view);
  };
  addEventListener("popstate", fromLocation);
  fromLocation();
  return h("section.own", title, ownTextForm(view), view.status, view.place);
}

function ownTextForm(view) {
  const onsubmit = (event) => {
    event.preventDefault();
    if (urlParameter("text") !== view.box.value) updateUrl({ text: view.box.value }, { push: true });
    readOwnText(view);
  };
  const button = h("button.main", { type: "submit" }, "Run");
  const form = h("form", { onsubmit }, view.box, h("p", button, h("span.quiet.small", " Ctrl-Enter")));
  view.box.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  return form;
}

async function readOwnText({ data, box, status, place }) {
  const say = (sentence) => replace(status, h("bdi", sentence));
  replace(place);
  if (!box.value) return say("");
  try {
    const path = `/L${data.layer}/${data.number}/coefficients.json`;
    const read = await askModel(path, { text: box.value }, { waiting: say, place: "own text" });
    replace(place, ownTokens(data.memory, read));
  } catch (error) {
    if (!isCancelled(error)) say(cutText(error.message, 400));
  }
}

function ownTokens(memory, { tokens, coefficients, maximum }) {
  const fired = coefficients.filter((number) => number > 0).length;
  const highest = coefficients.reduce((high, number, index) => (number > coefficients[high] ? index : high), 0);
  const of = maximum > 0 ? ` (${share(coefficients[highest] / maximum, 0)} of its maximum).` : ".";
  const all = countOf(tokens.length, "token");
  const words = fired
    ? [`${memory} fires on ${whole(fired)} of ${all}; highest ${real(coefficients[highest])} at `, token(tokens[highest]), of]
    : [`${memory} fires on none of ${all}.`];
  return [h("p", { role: "status" }, words), textTokens(tokens, coefficients, maximum), allNumbers(tokens, coefficients)];
}

// The coefficients as a table, for keyboard and touch.
function allNumbers(tokens, coefficients) {
  const body = h("tbody");
  const row = (text, index) => h("tr", h("th.number", { scope: "row" }, whole(index + 1)), h("td", token(text)),
    h("td.number", real(coefficients[index])));
  const ontoggle = () => body.children.length || replace(body, tokens.map(row));
  return h("details", { ontoggle }, h("summary", "All coefficients"),
    plainTable("All coefficients", ["Position", "Token", "Coefficient"], body, { numbers: [0, 2], low: true }));
}
