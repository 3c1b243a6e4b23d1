// Lines with their bands, names at their ends and the controls beside; one y range for all.
const isNarrow = () => window.innerWidth < 620;
const settings = { responsive: true, displaylogo: false, ...(isNarrow() && { displayModeBar: false }),
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };
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

const hoverOf = (label) => `<b>${label}</b><br>%{customdata[0]}<br>%{y:.3f} `
  + "[%{customdata[1]:.3f}, %{customdata[2]:.3f}]<extra></extra>";

function bandOf(label, rows, x, shape) {
  // A band's lower edge runs backwards, so its stairs are written out.
  const twice = (values, held) => (shape !== "hv" ? values
    : values.flatMap((v, i) => (i ? [held ? values[i - 1] : v, v] : [v])));
  const across = twice(rows.map(x), false);
  const high = twice(rows.map((r) => r.ci_high), true);
  const low = twice(rows.map((r) => r.ci_low), true);
  const alpha = 0.16 * Math.min(1, 4 / Math.max(1, chosen.methods.size));
  return {
    x: [...across, ...[...across].reverse()], y: [...high, ...low.reverse()], mode: "lines",
    fill: "toself", fillcolor: faint(lookOf[label].colour, alpha), line: { width: 0 },
    hoverinfo: "skip", showlegend: false, meta: "band",
  };
}

// A coloured line with its band, or a grey one without. `words` say what the hover calls a row.
function lineOf(label, rows, x, words, shape = "linear") {
  const look = lookOf[label], coloured = isColoured(label);
  const line = {
    name: label, x: rows.map(x), y: rows.map((r) => r.value), hovertemplate: hoverOf(label),
    customdata: rows.map((r) => [words(r), r.ci_low, r.ci_high]), meta: coloured ? "line" : "rest",
    mode: coloured && shape === "linear" ? "lines+markers" : "lines",
    line: coloured ? { color: look.colour, width: 2, dash: look.dash, shape }
      : { color: themed("rest"), width: 1, shape },
    marker: { symbol: look.symbol, size: 8, line: { color: themed("paper"), width: 1 } },
  };
  return coloured ? [bandOf(label, rows, x, shape), line] : [line];
}

// A row's value as a point with its interval, at a place of an axis.
function pointOf(row, x, axis, words) {
  const look = lookOf[row.label];
  return {
    name: row.label, x: [x], y: [row.value], mode: "markers", xaxis: axis, meta: "point",
    customdata: [[words, row.ci_low, row.ci_high]], hovertemplate: hoverOf(row.label),
    marker: { symbol: look.symbol, size: 7, color: look.colour },
    error_y: { type: "data", symmetric: false, array: [row.ci_high - row.value],
      arrayminus: [row.value - row.ci_low], color: look.colour, thickness: 1.4, width: 0 },
  };
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
    text: `<span style="color:${lookOf[each.label].colour}">●</span> ${nameOf(each.label)}`,
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
  lines.sort(([a], [b]) => isColoured(a) - isColoured(b)); // colours above the grey
  const alone = ticks.length === 1; // no line to see: points side by side
  const beside = (i) => x(lines[i][1][0]) + (i - (lines.length - 1) / 2) * 0.05;
  const traces = lines.flatMap(([label, own], i) => (!alone ? lineOf(label, own, x, words)
    : isColoured(label) ? [{ ...pointOf(own[0], beside(i), "x", words(own[0])), meta: "line" }] : []));
  controls.filter((r) => isColoured(r.label)).forEach((row, i) => traces.push(
    { ...pointOf(row, i, "x2", `control: ${isBlind(row.label) ? "blind" : "clean model"}, `
      + `${sizes(row)}, ${seedsOf(row)}`), meta: "control" }));
  const ends = lines.filter(([label]) => isColoured(label))
    .map(([label, own]) => ({ label, y: own[own.length - 1].value }));
  const across = ticks.map((tick) => tick.at), span = Math.max(...across) - Math.min(...across);
  const room = alone ? 0.6 : 0.04 * span, longest = Math.max(0, ...ends.map((e) => nameOf(e.label).length));
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
