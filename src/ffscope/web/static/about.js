// What the server says on every page of the study, its stages and the measures of a memory.
import { byId } from "./dom.js";

let block = null;

// null on a page that says why there is none.
export function aboutStudy() {
  block ??= JSON.parse(byId("about")?.textContent ?? "null");
  return block && { ...globalThis.aboutStages, ...block }; // an export keeps what all its pages share in their script
}
