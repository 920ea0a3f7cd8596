// The addresses of pages: paths on the server, files in an export.

const root = () => document.documentElement.dataset.root ?? "/";
export const isExport = () => document.documentElement.dataset.exported !== undefined;

let exported = null;

// The memories that have a page in an export; others are shown without a link.
export function exportedMemories() {
  if (exported === null) {
    const block = document.getElementById("exported");
    exported = new Set(block ? JSON.parse(block.textContent) : []);
  }
  return exported;
}

export function memoryLink(name) {
  const [layer, number] = name.slice(1).split(".");
  if (!isExport()) return `/L${layer}/${number}`;
  return exportedMemories().has(name) ? `${root()}L${layer}/${number}.html` : null;
}

export function layerLink(layer) {
  return isExport() ? `${root()}L${layer}/index.html` : `/L${layer}`;
}

// The address of a page; null in an export for pages that need the server.
export function pageLink(name) {
  const file = { overview: "index.html", search: "search.html", diff: "diff.html", leaks: "leaks.html" }[name];
  if (isExport()) return file ? `${root()}${file}` : null;
  return name === "overview" ? "/" : `/${name}`;
}

// A path with those parameters that are not empty, in their order.
export function withQuery(path, parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== "" && value !== false) query.set(name, String(value));
  }
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}
