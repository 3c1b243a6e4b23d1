"use strict";
// The page's charts: every filter change redraws all of them from the data in the page.
const page = JSON.parse(document.getElementById("data").textContent);

// Tables come as columns; a text column as its distinct values and a code a row.
function rowsOf(table) {
  const names = Object.keys(table.columns);
  return Array.from({ length: table.length }, (_, i) => Object.fromEntries(names.map((name) => {
    const column = table.columns[name];
    return [name, column.levels ? column.levels[column.codes[i]] : column[i]];
  })));
}

const estimates = rowsOf(page.estimates), curves = rowsOf(page.curves), bins = rowsOf(page.bins);
const losses = rowsOf(page.losses);
const distinct = (values) => [...new Set(values)];
const labels = page.methods.map((each) => each.label);
const lookOf = Object.fromEntries(page.methods.map((each) => [each.label, each]));
const chosen = {
  condition: page.conditions[0], checkpoint: "contaminated", metric: "auroc", benchmark: "all",
  methods: new Set(labels), factor: "0", scored: page.scored[0],
};
const settings = { responsive: true, displaylogo: false,
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };
const element = (id) => document.getElementById(id);

function layoutOf(x, y, more = {}) {
  return {
    margin: { l: 60, r: 10, t: 32, b: 50 }, font: { size: 12 }, hovermode: "closest",
    paper_bgcolor: "#fff", plot_bgcolor: "#fff", showlegend: true,
    legend: { font: { size: 10 }, itemclick: false, itemdoubleclick: false,
      tracegroupgap: 0 },
    xaxis: { gridcolor: "#e6e6e6", zeroline: false, title: { text: x }, ...more.xaxis },
    yaxis: { gridcolor: "#e6e6e6", zeroline: false, title: { text: y }, ...more.yaxis },
    shapes: more.shapes || [],
  };
}

function faint(colour, alpha) {
  const part = (from) => parseInt(colour.slice(from, from + 2), 16);
  return `rgba(${part(1)},${part(3)},${part(5)},${alpha})`;
}

// A line with its band. `x` is drawn, `words` say what the hover calls it.
function lineOf(label, rows, x, words, shape = "linear") {
  const look = lookOf[label], drawn = rows.map(x), group = { legendgroup: label };
  // A band's lower edge runs backwards, so its stairs are written out.
  const twice = (values, held) => (shape !== "hv" ? values
    : values.flatMap((v, i) => (i ? [held ? values[i - 1] : v, v] : [v])));
  const across = twice(drawn, false);
  const high = twice(rows.map((r) => r.ci_high), true);
  const low = twice(rows.map((r) => r.ci_low), true);
  const band = {
    ...group, x: [...across, ...[...across].reverse()], mode: "lines", fill: "toself",
    y: [...high, ...low.reverse()],
    fillcolor: faint(look.colour, 0.14 * Math.min(1, 6 / chosen.methods.size)),
    line: { width: 0 }, hoverinfo: "skip", showlegend: false, meta: "band",
  };
  const line = {
    ...group, name: label, x: drawn, y: rows.map((r) => r.value), customdata: rows.map(
      (r) => [words(r), r.ci_low, r.ci_high, r.n_members || "", r.n_nonmembers || ""]),
    mode: rows[0] && rows[0].metric ? "lines+markers" : "lines", meta: "line",
    line: { color: look.colour, width: 2, dash: look.dash, shape },
    marker: { symbol: look.symbol, size: 8, line: { color: "#fff", width: 1 } },
    hovertemplate: `<b>${label}</b><br>%{customdata[0]}<br>%{y:.3f} ` +
      "[%{customdata[1]:.3f}, %{customdata[2]:.3f}]<extra></extra>",
  };
  return [band, line];
}

const asked = (more) => estimates.filter((r) => r.metric === chosen.metric && more(r));
// What the examples can carry; the caption says of the rest what it needs.
const measured = (more) => asked(more).filter((r) => r.value !== null);
function lacking(more) {
  const said = distinct(asked((r) => r.needs && more(r)).map((r) => `${r.benchmark} `
    + `(${sizes(r)}) needs ${r.needs}`));
  return said.length ? ` Not shown: ${said.join("; ")}.` : "";
}
const checkpointOf = (r) => (lookOf[r.label].blind ? "clean" : chosen.checkpoint);
const isShown = (r) => chosen.methods.has(r.label) && r.checkpoint === checkpointOf(r);
const sizes = (r) => `${r.n_members} members, ${r.n_nonmembers} non-members`;
const seedsOf = (r) => `${r.n_seeds} seed${r.n_seeds > 1 ? "s" : ""}`;
const metric = () => page.metrics[chosen.metric];
const metricName = () => metric().title;

function guess(from, to) {
  return [{ type: "line", x0: from, x1: to, xref: "paper", y0: metric().guess,
    y1: metric().guess, line: { color: "#555", width: 1, dash: "dot" } }];
}

function caption(id, text) {
  element(`figure-${id}`).querySelector("figcaption").textContent = text;
}

function show(id, traces, layout) {
  element(`figure-${id}`).hidden = false;
  Plotly.react(id === "factor" ? "factor-chart" : id, traces, layout, settings);
}

function drawOccurrences() {
  const wanted = (r) => r.condition === chosen.condition && isShown(r)
    && r.benchmark === chosen.benchmark && r.occurrences !== "any";
  const rows = measured(wanted);
  const numbers = distinct(rows.map((r) => Number(r.occurrences))).sort((a, b) => a - b);
  const traces = labels.filter((label) => chosen.methods.has(label)).flatMap((label) => {
    const line = rows.filter((r) => r.label === label)
      .sort((a, b) => a.occurrences - b.occurrences);
    return lineOf(label, line, (r) => Math.log2(r.occurrences),
      (r) => `${r.occurrences} ×: ${sizes(r)}, ${seedsOf(r)}`);
  });
  show("occurrences", traces, layoutOf("occurrences of a member", metricName(), {
    xaxis: { tickvals: numbers.map(Math.log2), ticktext: numbers.map(String) }, shapes: guess(0, 1),
  }));
  caption("occurrences", (rows.length ? `${words()}. Members at each number of occurrences against all `
    + `${rows[0].n_nonmembers} non-members, ${seedsOf(rows[0])}. ${page.band}` : "Not measured.")
    + lacking(wanted));
}

function words() {
  const over = chosen.benchmark === "all" ? "mean over benchmarks" : chosen.benchmark;
  return `${metricName()}, ${over}, ${chosen.checkpoint} model`;
}

function drawFactor() {
  const series = page.factors[Number(chosen.factor)];
  if (!series) { element("figure-factor").hidden = true; return; }
  const wanted = (r) => series.conditions.includes(r.condition) && isShown(r)
    && r.benchmark === chosen.benchmark && r.occurrences === "any";
  const rows = measured(wanted);
  const values = distinct(rows.map((r) => r[series.column])).sort((a, b) => a - b);
  const traces = labels.filter((label) => chosen.methods.has(label)).flatMap((label) => {
    const line = rows.filter((r) => r.label === label)
      .sort((a, b) => a[series.column] - b[series.column]);
    return lineOf(label, line, (r) => r[series.column],
      (r) => `${series.axis} ${r[series.column]}: ${sizes(r)}, ${seedsOf(r)}`);
  });
  show("factor", traces, layoutOf(series.axis, metricName(), {
    xaxis: { type: "log", tickvals: values, ticktext: values.map((v) => v.toPrecision(2) * 1) },
    shapes: guess(0, 1),
  }));
  caption("factor", `${words()}; all members. ${page.band}${lacking(wanted)}`);
}

function drawHeat() {
  const wanted = (r) => r.condition === chosen.condition && r.occurrences === "any" && isShown(r);
  const rows = measured(wanted);
  const benchmarks = page.benchmarks.filter((name) => rows.some((r) => r.benchmark === name));
  const shown = labels.filter((label) => rows.some((r) => r.label === label)).reverse();
  const found = new Map(rows.map((r) => [`${r.label}\n${r.benchmark}`, r]));
  const at = (pick) => shown.map((label) => benchmarks.map((benchmark) => {
    const row = found.get(`${label}\n${benchmark}`);
    return row ? pick(row) : null;
  }));
  show("heat", [{
    type: "heatmap", x: benchmarks, y: shown, z: at((r) => r.value), zmin: 0, zmax: 1,
    colorscale: metric().colours, xgap: 2, ygap: 2, texttemplate: "%{z:.2f}", textfont: { size: 11 },
    customdata: at((r) => [r.ci_low, r.ci_high, sizes(r), seedsOf(r)]), hovertemplate:
      "<b>%{y}</b>, %{x}<br>%{z:.3f} [%{customdata[0]:.3f}, %{customdata[1]:.3f}]"
      + "<br>%{customdata[2]}, %{customdata[3]}<extra></extra>",
    colorbar: { title: { text: metricName(), side: "right" }, thickness: 12 },
  }], layoutOf("", "", { xaxis: { showgrid: false },
    yaxis: { showgrid: false, automargin: true, tickfont: { size: 11 } } }));
  caption("heat", `${metricName()} of all members, ${chosen.checkpoint} model. `
    + `White is a guess (${metric().guess}), orange is better, purple worse. `
    + `Hover for the interval.${lacking(wanted)}`);
}

function drawRoc() {
  const rows = curves.filter((r) => r.condition === chosen.condition
    && r.benchmark === chosen.benchmark && r.checkpoint === chosen.checkpoint
    && chosen.methods.has(r.label));
  const traces = labels.filter((label) => rows.some((r) => r.label === label)).flatMap((label) =>
    lineOf(label, rows.filter((r) => r.label === label), (r) => r.fpr,
      (r) => `FPR ${r.fpr.toPrecision(2)}: TPR`, "hv"));
  traces.push({ x: [page.least, 1], y: [page.least, 1], mode: "lines", name: "a guess",
    line: { color: "#555", width: 1, dash: "dot" }, hoverinfo: "skip", meta: "guess" });
  const axis = { type: "log", range: [Math.log10(page.least), 0.02],
    dtick: page.least < 0.02 ? 1 : "D2" };
  show("roc", traces, layoutOf("false-positive rate", "true-positive rate",
    { xaxis: axis, yaxis: axis }));
  caption("roc", `All members, ${chosen.checkpoint} model, ${chosen.benchmark === "all"
    ? "mean over benchmarks" : chosen.benchmark}. ${page.curveBand}`);
}

function drawHistogram() {
  const rows = bins.filter((r) => r.condition === chosen.condition && r.label === chosen.scored
    && r.benchmark === chosen.benchmark && r.checkpoint === chosen.checkpoint);
  const traces = Object.entries(page.sides).map(([side, colour]) => {
    const own = rows.filter((r) => r.side === side);
    return {
      type: "bar", name: side, x: own.map((r) => r.centre), y: own.map((r) => r.share),
      marker: { color: faint(colour, 0.5), line: { color: colour, width: 1 } },
      error_y: { type: "data", symmetric: false, array: own.map((r) => r.ci_high - r.share),
        arrayminus: own.map((r) => r.share - r.ci_low), thickness: 1, width: 0, color: colour },
      hovertemplate: `<b>${side}</b><br>score %{x:.2f}<br>share %{y:.3f}<extra></extra>`,
    };
  });
  show("histogram", traces, { ...layoutOf("score, in standard deviations of the non-members",
    "share"), barmode: "overlay", bargap: 0 });
  caption("histogram", "Scores are standardised within each benchmark and seed; the outermost "
    + "bins hold all beyond. Bars: 95% Wilson intervals of a bin's share.");
}

function drawLoss() {
  const rows = losses.filter((r) => r.condition === chosen.condition);
  if (!rows.length) { element("figure-loss").hidden = true; return; }
  const traces = Object.entries(page.lossSides).flatMap(([side, colour]) => {
    const own = rows.filter((r) => r.side === side), steps = own.map((r) => r.step);
    return [{
      x: [...steps, ...[...steps].reverse()], mode: "lines", fill: "toself", hoverinfo: "skip",
      y: [...own.map((r) => r.high), ...own.map((r) => r.low).reverse()], showlegend: false,
      fillcolor: faint(colour, 0.15), line: { width: 0 }, meta: "band",
    }, {
      x: steps, y: own.map((r) => r.loss), name: side, mode: "lines+markers", meta: "line",
      line: { color: colour, dash: page.lossDashes[side] }, hovertemplate: `<b>${side}</b><br>step %{x}<br>loss `
        + "%{y:.3f}<extra></extra>",
    }];
  });
  const exposed = page.exposures[chosen.condition] || [];
  traces.push({ type: "bar", x: exposed.map((e) => e[0]), y: exposed.map((e) => e[1]),
    name: "copies seen", yaxis: "y2", marker: { color: "#bbb" },
    hovertemplate: "step %{x}<br>%{y} copies<extra></extra>" });
  const layout = layoutOf("optimizer step", "loss a token",
    { xaxis: { anchor: "y2" }, yaxis: { domain: [0.28, 1] } });
  layout.yaxis2 = { domain: [0, 0.2], title: { text: "copies" }, gridcolor: "#eee" };
  show("loss", traces, layout);
  caption("loss", page.lossCaption[chosen.condition] || "");
}

function draw() {
  const off = page.stamps[chosen.condition];
  element("stamp").hidden = !off;
  element("stamp").textContent = off || "";
  [drawOccurrences, drawFactor, drawHeat, drawRoc, drawHistogram, drawLoss].forEach((each) => each());
}

function fill(id, options, key) {
  const select = element(id);
  options.forEach(([value, text]) => select.add(new Option(text, value)));
  select.value = chosen[key];
  select.addEventListener("change", () => { chosen[key] = select.value; draw(); });
}

function chip(parent, text, pressed, click, colour) {
  const button = document.createElement("button");
  button.type = "button";
  button.dataset.value = text;
  if (colour) {
    const dot = document.createElement("i");
    dot.style.background = colour;
    button.append(dot);
  } else if (pressed === null) {
    button.className = "plain";
  }
  button.append(text);
  if (pressed !== null) { button.setAttribute("aria-pressed", String(pressed)); }
  button.addEventListener("click", () => { click(button); draw(); });
  element(parent).append(button);
  return button;
}

function press() {
  document.querySelectorAll("#methods button[aria-pressed]").forEach((button) =>
    button.setAttribute("aria-pressed", String(chosen.methods.has(button.dataset.value))));
  document.querySelectorAll("#benchmarks button").forEach((button) =>
    button.setAttribute("aria-pressed", String(chosen.benchmark === button.dataset.value)));
}

function start() {
  fill("condition", page.conditions.map((name) => [name, name]), "condition");
  fill("checkpoint", [["contaminated", "contaminated"], ["clean", "clean (control)"]],
    "checkpoint");
  fill("metric", Object.entries(page.metrics).map(([name, { title }]) => [name, title]), "metric");
  fill("factor", page.factors.map((each, i) => [String(i), each.name]), "factor");
  fill("scored", page.scored.map((label) => [label, label]), "scored");
  page.benchmarks.forEach((name) => chip("benchmarks", name, name === "all", () => {
    chosen.benchmark = name;
    press();
  }));
  labels.forEach((label) => chip("methods", label, true, () => {
    if (!chosen.methods.delete(label)) { chosen.methods.add(label); }
    press();
  }, lookOf[label].colour));
  chip("methods", "all methods", null, () => { chosen.methods = new Set(labels); press(); });
  chip("methods", "none", null, () => { chosen.methods = new Set(); press(); });
  draw();
  document.body.dataset.ready = "true";
}

start();
