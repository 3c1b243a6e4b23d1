// Lines with their intervals, names at their ends and the controls beside; one y range for all.
const isNarrow = () => window.innerWidth < 620;
const settings = { responsive: true, displaylogo: false, ...(isNarrow() && { displayModeBar: false }),
  modeBarButtons: [["toImage"]] }; // one stop for the tab key; a double click ends a zoom
const MARGIN = { t: 14, b: 50 };
const NAME_HEIGHT = 14; // pixels from one name to the next

// A colour of the style sheet, as it is in the light or the dark.
function themed(name) {
  const probe = element("probe");
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

function layoutOf(x, y, more = {}) {
  const axis = { gridcolor: themed("line"), zeroline: false, linecolor: themed("grey") };
  return {
    margin: { l: isNarrow() ? 44 : 56, r: 10, ...MARGIN }, hovermode: "closest", autosize: true,
    font: { size: isNarrow() ? 11 : 12, color: themed("ink") }, showlegend: false,
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    hoverlabel: { bgcolor: themed("paper"), font: { color: themed("ink") } },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", font: { size: 11 } },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: themed("rest"), activecolor: themed("grey") },
    ...more,
    xaxis: { ...axis, title: { text: x }, ...more.xaxis },
    yaxis: { ...axis, title: { text: y }, ...more.yaxis },
  };
}

function faint(colour, alpha) {
  const part = (from) => parseInt(colour.slice(from, from + 2), 16);
  return `rgba(${part(1)},${part(3)},${part(5)},${alpha})`;
}

// Plotly reads tags in its texts, links among them: names come from data, and are shown as they are.
const plain = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;");

const hoverOf = (label) => `<b>${plain(label)}</b><br>%{customdata[0]}<br>%{y:.3f} `
  + "[%{customdata[1]:.3f}, %{customdata[2]:.3f}]<extra></extra>";

// Every point has its interval as a bar, one method's beside the other's. Bands would cover each
// other: there is one for blind, for up to two methods, and for the method that is pointed at.
const FEW_BANDS = 2;
let pointed = "";
const hasBand = (label) => isBlind(label) || label === pointed || chosen.methods.size <= FEW_BANDS;
const bandColour = (label) => (hasBand(label) ? faint(lookOf[label].colour, 0.16) : "rgba(0,0,0,0)");
const lineWidth = (label) => (label === pointed ? 3.5 : 2);

function point(label) {
  if (label === pointed) { return; }
  pointed = label;
  ["factor", "occurrences", "roc"].map(element).filter((each) => each.data).forEach((each) => {
    const found = each.data.map((trace, i) => [trace, i])
      .filter(([trace]) => trace.meta === "band" || trace.meta === "line");
    Plotly.restyle(each, { fillcolor: found.map(([trace]) => bandColour(trace.name)),
      "line.width": found.map(([trace]) => (trace.meta === "band" ? 0 : lineWidth(trace.name))) },
    found.map(([, i]) => i));
  });
}

function bandOf(label, rows, x, shape) {
  // A band's lower edge runs backwards, so its stairs are written out.
  const twice = (values, held) => (shape !== "hv" ? values
    : values.flatMap((v, i) => (i ? [held ? values[i - 1] : v, v] : [v])));
  const across = twice(rows.map(x), false);
  const high = twice(rows.map((r) => r.ci_high), true);
  const low = twice(rows.map((r) => r.ci_low), true);
  return {
    name: label, x: [...across, ...[...across].reverse()], y: [...high, ...low.reverse()], mode: "lines",
    fill: "toself", fillcolor: bandColour(label), line: { width: 0 },
    hoverinfo: "skip", showlegend: false, meta: "band",
  };
}

// Some symbols cover less of their box than others.
const sizeOf = (symbol) => (["circle", "square", "diamond"].includes(symbol) ? 7 : 9.5);

// From a value to its interval's ends.
const barsOf = (rows, colour) => ({ type: "data", symmetric: false, color: colour, width: 0,
  array: rows.map((r) => r.ci_high - r.value), thickness: 1.4,
  arrayminus: rows.map((r) => r.value - r.ci_low) });

// A coloured line with its band, or a grey one without. `words` say what the hover calls a row.
function lineOf(label, rows, x, words, shape = "linear") {
  const look = lookOf[label], coloured = isColoured(label);
  const line = {
    name: label, x: rows.map(x), y: rows.map((r) => r.value), hovertemplate: hoverOf(label),
    customdata: rows.map((r) => [plain(words(r)), r.ci_low, r.ci_high]), meta: coloured ? "line" : "rest",
    mode: coloured && shape === "linear" ? "lines+markers" : "lines",
    line: coloured ? { color: look.colour, width: lineWidth(label), dash: look.dash, shape }
      : { color: themed("rest"), width: 1, shape },
    marker: { symbol: look.symbol, size: sizeOf(look.symbol) + 1,
      line: { color: themed("paper"), width: 1 } },
  };
  return coloured ? [bandOf(label, rows, x, shape), line] : [line];
}

// Values of a method as points with their intervals, at places of an axis.
function pointsOf(label, rows, x, words, axis = "x") {
  const look = lookOf[label];
  return {
    name: label, x: rows.map(x), y: rows.map((r) => r.value), mode: "markers", xaxis: axis,
    customdata: rows.map((r) => [plain(words(r)), r.ci_low, r.ci_high]), hovertemplate: hoverOf(label),
    marker: { symbol: look.symbol, size: sizeOf(look.symbol), color: look.colour }, meta: "point",
    error_y: barsOf(rows, look.colour),
  };
}

// How far each coloured method stands from its place, so that no bar covers another; blind has none.
// `span` is from the first place to the last, `gap` the least from one to the next.
function besideEachOther(drawn, span, gap) {
  const methods = drawn.filter((label) => isColoured(label) && !isBlind(label));
  const step = Math.min(0.02 * span, 0.08 * gap, (0.44 * gap) / Math.max(1, methods.length));
  return Object.fromEntries(drawn.map((label) => [label,
    methods.includes(label) ? (methods.indexOf(label) - (methods.length - 1) / 2) * step : 0]));
}

// From the lowest to the highest of what the charts of a row draw, with the guess inside.
function rangeOf(rows) {
  const shown = rows.flatMap((r) => (isColoured(r.label) ? [r.ci_low, r.ci_high] : [r.value]));
  const low = Math.min(metric().guess, ...shown), high = Math.max(metric().guess, ...shown);
  const room = 0.04 * (high - low) + 0.005;
  return [low - room, high + room];
}

const nameOf = (label) => (isBlind(label) ? "blind" : label);

// The names beside the ends of the lines, moved apart where they would cover each other.
function namesOf(ends, range, height) {
  const pixel = (y) => ((range[1] - y) / (range[1] - range[0])) * height;
  const placed = [...ends].sort((a, b) => b.y - a.y).map((end) => ({ ...end, at: pixel(end.y) }));
  placed.forEach((each, i) => {
    if (i) { each.at = Math.max(each.at, placed[i - 1].at + NAME_HEIGHT); }
  });
  placed.reverse().forEach((each, i) => {
    each.at = Math.min(each.at, i ? placed[i - 1].at - NAME_HEIGHT : height);
  });
  return placed.map((each) => ({
    x: 1, xref: "paper", xanchor: "left", y: 1 - each.at / height, yref: "paper",
    yanchor: "middle", showarrow: false, font: { size: isNarrow() ? 9.5 : 11 }, name: each.label,
    text: `<span style="color:${lookOf[each.label].colour}">●</span> ${plain(nameOf(each.label))}`,
  }));
}

function guessLine() {
  return { type: "line", x0: 0, x1: 1, xref: "paper", y0: metric().guess, y1: metric().guess,
    line: { color: themed("grey"), width: 1, dash: "dot" } };
}

// Methods along `x` (of a row), on ticks, beside the controls: the clean model's, and blind.
function drawLines(id, { rows, controls, x, ticks, title, words, range }) {
  const lines = labels.map((label) => [label, rows.filter((r) => r.label === label)
    .sort((a, b) => x(a) - x(b))]).filter(([, own]) => own.length);
  const across = ticks.map((tick) => tick.at), span = across[across.length - 1] - across[0];
  const alone = ticks.length === 1; // no line to see: points side by side
  const gap = alone ? 1 : Math.min(...across.slice(1).map((at, i) => at - across[i]));
  const beside = besideEachOther(lines.map(([label]) => label), alone ? 5 : span, gap);
  lines.sort(([a], [b]) => isColoured(a) - isColoured(b)); // colours above the grey
  const traces = lines.flatMap(([label, own]) => {
    const at = (r) => x(r) + beside[label], points = pointsOf(label, own, at, words);
    if (alone) { return isColoured(label) ? [{ ...points, meta: "line" }] : []; }
    const made = lineOf(label, own, at, words);
    if (isColoured(label) && !isBlind(label)) { made[1].error_y = points.error_y; }
    return made;
  });
  controls.filter((r) => isColoured(r.label)).forEach((row, i) => traces.push(
    { ...pointsOf(row.label, [row], () => i, (r) => `control: `
      + `${isBlind(r.label) ? "blind" : "clean model"}, ${sizes(r)}, ${seedsOf(r)}`, "x2"),
    meta: "control" }));
  const ends = lines.filter(([label]) => isColoured(label))
    .map(([label, own]) => ({ label, y: own[own.length - 1].value }));
  const room = alone ? 0.6 : 0.04 * span + Math.max(...Object.values(beside)), longest = Math.max(0, ...ends.map((e) => nameOf(e.label).length));
  const height = element(id).clientHeight - MARGIN.t - MARGIN.b, panel = isNarrow() ? 0.2 : 0.15;
  show(id, traces, layoutOf(title, metric().title, {
    margin: { l: isNarrow() ? 44 : 56, r: Math.min(18 + (isNarrow() ? 5.6 : 6.6) * longest, 190), ...MARGIN },
    xaxis: { domain: [panel + 0.03, 1], tickvals: across, ticktext: ticks.map((t) => t.text),
      range: [Math.min(...across) - room, Math.max(...across) + room] },
    xaxis2: { domain: [0, panel], anchor: "y", showticklabels: false, showgrid: false, zeroline: false,
      title: { text: isNarrow() ? "clean" : "clean, blind" } },
    yaxis: { range, anchor: "x2" }, annotations: namesOf(ends, range, height), shapes: [guessLine()],
  }));
}
