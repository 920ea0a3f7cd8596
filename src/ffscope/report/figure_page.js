// Draws the specification in this page. No text in it is ever read as code or as markup.
const spec = JSON.parse(document.getElementById("spec").textContent);
const tip = document.getElementById("tip");

function showTip(handler, event, item, value) {
  tip.hidden = value === null || value === undefined || value === "";
  if (tip.hidden) return;
  tip.replaceChildren(...Object.entries(value).map(([name, text]) => {
    const row = document.createElement("tr");
    const [head, cell] = [document.createElement("th"), document.createElement("td")];
    head.textContent = name;
    cell.textContent = text;
    row.append(head, cell);
    return row;
  }));
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8))}px`;
}

// `ast`: expressions are interpreted, and a canvas needs no style attributes, so that the page's policy need not allow either.
vegaEmbed("#figure", spec, {
  mode: "vega-lite", ast: true, renderer: "canvas", actions: false, defaultStyle: false, tooltip: showTip,
});
