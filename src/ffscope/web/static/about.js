// Facts embedded in every page: the study, its stages, the measures and the glossary.
import { byId } from "./dom.js";

let block = null;

// null on an error page.
export function aboutStudy() {
  block ??= JSON.parse(byId("about")?.textContent ?? "null");
  return block && { ...globalThis.sharedAbout, ...block }; // in an export, what all pages share is in the script
}
