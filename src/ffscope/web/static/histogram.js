// The histogram of a memory's coefficients. Bins double in width on both sides of a bin for exactly 0.
import { h, real, share, whole } from "./dom.js";

const ZERO_BIN = 22;

export function coefficientHistogram({ histogram, histogram_edges: edges, seen: prefixes, fired }) {
  const used = histogram.map((count, bin) => (count ? bin : -1)).filter((bin) => bin >= 0);
  if (!used.length) return h("p.quiet", "No coefficients were counted.");
  if (used.length === 1 && used[0] === ZERO_BIN) return h("p", `Exactly 0 on all ${whole(prefixes)} prefixes.`);
  const first = Math.min(ZERO_BIN, ...used);
  const last = Math.max(ZERO_BIN + 1, ...used);
  const highest = Math.max(...histogram);
  const bars = [];
  for (let bin = first; bin <= last; bin++) bars.push(histogramBar(bin, histogram[bin], highest, edges));
  const fires = share(prefixes ? fired / prefixes : null);
  const span = h("span.fires", `fires ${fires}`);
  span.style.setProperty("--from", ZERO_BIN + 2 - first);
  const ends = `from ${binWords(used[0], edges)} to ${binWords(used.at(-1), edges)}`;
  const label = `Coefficients of ${whole(prefixes)} prefixes, ${ends}; ${fires} above 0.`;
  const axis = h("div.histogram-axis", axisMarks(first, last, edges));
  const place = h("div.histogram", { role: "img", "aria-label": label }, bars, axis, span);
  place.style.setProperty("--bins", last - first + 1);
  const zeros = histogram[ZERO_BIN];
  return [place, h("p.quiet.small", "Each bar covers twice the range of its neighbour nearer to 0. ",
    "Heights are logarithmic in the number of prefixes. ",
    zeros ? `Exactly 0: ${whole(zeros)} of ${whole(prefixes)}.` : `${whole(prefixes)} prefixes in all.`)];
}

function histogramBar(bin, count, highest, edges) {
  const kind = bin === ZERO_BIN ? "none" : bin > ZERO_BIN ? "hot" : "cold";
  const bar = h(`div.bin.${kind}`, { title: `${binWords(bin, edges)}: ${whole(count)}` });
  const size = count ? Math.max(0.03, Math.log1p(count) / Math.log1p(highest)) : 0;
  bar.style.setProperty("--size", size.toFixed(3));
  return bar;
}

// The two ends of a bin; the one nearer to 0 first.
function binEnds(bin, edges) {
  const steps = Math.abs(bin - ZERO_BIN);
  return [steps === 1 ? 0 : edges[steps - 2], steps > edges.length ? Infinity : edges[steps - 1]];
}

function binWords(bin, edges) {
  if (bin === ZERO_BIN) return "exactly 0";
  const sign = bin < ZERO_BIN ? "−" : "";
  const [near, far] = binEnds(bin, edges);
  if (near === 0) return `0 to ${sign}${real(far)}`;
  return far === Infinity ? `beyond ${sign}${real(near)}` : `${sign}${real(near)} to ${sign}${real(far)}`;
}

// Axis labels: 0, and every few bins the edge of the bin.
function axisMarks(first, last, edges) {
  const every = Math.max(2, Math.ceil((last - first) / 5));
  const marks = [];
  for (let bin = first; bin <= last; bin++) {
    const steps = bin - ZERO_BIN;
    if (steps !== 0 && (steps % every !== 0 || Math.abs(steps) > edges.length)) continue;
    const mark = h(steps > 0 ? "span.right" : steps < 0 ? "span.left" : "span",
      steps === 0 ? "0" : `${steps < 0 ? "−" : ""}${real(edges[Math.abs(steps) - 1], 2)}`);
    mark.style.setProperty("--at", bin - first + 1);
    marks.push(mark);
  }
  return marks;
}
