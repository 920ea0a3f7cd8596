// Similar memories: by shared triggers, by promoted tokens and, with the model, by the direction of their values.
import { askModel, isCancelled } from "./requests.js";
import { h, replace, whole } from "./dom.js";
import { isExport } from "./links.js";
import { cutText, memoryName, needsModel } from "./widgets.js";


export function similarPart({ memory, layer, number, similar }, about) {
  const shared = (what) => (row) => ` ${whole(row.shared)} of ${whole(row.of)} ${what}`;
  return [
    h("h3", "By shared triggers"), similarList(similar?.triggers ?? [], shared("triggers")),
    h("h3", "By promoted tokens"), similarList(similar?.tokens ?? [], shared("tokens")),
    isExport() ? null : nearestValues(`/L${layer}/${number}/similar.json`, memory, about),
  ];
}

function similarList(rows, words) {
  if (!rows.length) return h("p.quiet", "None.");
  return h("ul.similar", rows.map((row) => h("li", memoryName(row.memory), h("span.quiet", words(row)))));
}

function nearestValues(path, memory, about) {
  const status = h("p.quiet.small", { role: "status" }, about.model ? "" : needsModel(about));
  const place = h("div");
  const begin = async () => {
    try {
      const { similar } = await askModel(path, {}, { waiting: (sentence) => replace(status, sentence) });
      const others = similar.filter((row) => row.memory !== memory);
      replace(place, similarList(others, (row) => ` cosine ${row.cosine.toFixed(2).replace("-", "−")}`));
    } catch (error) {
      if (!isCancelled(error)) replace(status, h("bdi", cutText(error.message, 300)));
    }
  };
  if (about.model) begin();
  return [h("h3", "By direction of the value"), place, status];
}
