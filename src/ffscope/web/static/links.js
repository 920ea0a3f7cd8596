// Where pages are: on the server by their path, in an export by their file.

const root = () => document.documentElement.dataset.root ?? "/";
export const isExport = () => document.documentElement.dataset.exported !== undefined;

let exported = null;

// In an export not every memory has a page; names that are not there are shown without a link.
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

// What needs the server has no page in an export.
export function pageLink(name) {
  const file = { overview: "index.html", search: "search.html" }[name];
  if (isExport()) return file ? `${root()}${file}` : null;
  return name === "overview" ? "/" : `/${name}`;
}

// An address with what is not empty of these, in the order given.
export function withQuery(path, asked) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(asked)) {
    if (value !== null && value !== undefined && value !== "" && value !== false) query.set(name, String(value));
  }
  const said = query.toString();
  return said ? `${path}?${said}` : path;
}
