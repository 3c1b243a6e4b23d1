// The charts: each filters the rows, draws them, and says in its caption what it shows.
const figureOf = (id) => element(`figure-${id}`);
const caption = (id, ...parts) => {
  const text = parts.filter(Boolean).join(" ");
  figureOf(id).querySelector("figcaption").textContent = text;
  element(id).setAttribute("role", "img");
  element(id).setAttribute("aria-label", `${NAMES[id]}. ${text}`);
};
const NAMES = { factor: "Line chart along the sweep", occurrences: "Line chart by occurrences",
  heat: "Heat map of methods and benchmarks", roc: "ROC curves on logarithmic axes",
  histogram: "Histogram of scores", loss: "Line chart of losses during training" };

function show(id, traces, layout) {
  figureOf(id).querySelector(".empty").hidden = true;
  element(id).hidden = false;
  const buttons = id === "heat" ? { displayModeBar: false } : {}; // they would cover its cells
  Plotly.react(id, traces, layout, { ...settings, ...buttons }).then(() => Plotly.Plots.resize(id));
  if (element(id).dataset.listens) { return; }
  element(id).dataset.listens = "true";
  element(id).on("plotly_hover", ({ points }) => point(points[0].data.name));
  element(id).on("plotly_unhover", () => point(""));
}

// In place of a chart: why there is none, and what to do.
function empty(id, why, remedy) {
  const place = figureOf(id).querySelector(".empty");
  [place.hidden, element(id).hidden] = [false, true];
  place.textContent = `Nothing to draw. ${why} ${remedy}`;
  caption(id);
}
const OTHER = "Choose another condition, metric or benchmark above.";

// What the two charts of lines draw: so that one y range serves both.
function linesWanted() {
  const here = (r) => isShown(r) && r.benchmark === chosen.benchmark;
  const control = (r) => r.checkpoint === "clean" && r.benchmark === chosen.benchmark
    && r.occurrences === "any";
  const series = page.factors[Number(chosen.factor)];
  const along = (r) => Boolean(series) && series.conditions.includes(r.condition);
  const shared = (r) => [r.label, r.value].join(); // conditions may share a clean model
  const once = (rows) => [...new Map(rows.map((r) => [shared(r), r])).values()];
  const own = (r) => r.condition === chosen.condition;
  return {
    series,
    factor: { wanted: (r) => here(r) && along(r) && r.occurrences === "any",
      controls: once(measured((r) => control(r) && along(r))) },
    occurrences: { wanted: (r) => here(r) && own(r) && r.occurrences !== "any",
      controls: measured((r) => control(r) && own(r)) },
  };
}

function drawFactor({ series, factor: { wanted, controls } }, range) {
  figureOf("factor").hidden = !series;
  if (!series) { return; }
  const rows = measured(wanted);
  if (!rows.length) { empty("factor", lacking(wanted), OTHER); return; }
  drawLines("factor", {
    rows, controls, range, title: plain(series.axis), x: (r) => Math.log2(r[series.column]),
    ticks: series.levels.map((level, i) => ({ at: Math.log2(level), text: plain(series.texts[i]) })),
    words: (r) => `${series.axis} ${r[series.column]}: ${sizes(r)}, ${seedsOf(r)}`,
  });
  caption("factor", `${what()}; all members; ${series.fixed}.${series.without}`, page.band,
    lacking(wanted));
}

function drawOccurrences({ occurrences: { wanted, controls } }, range) {
  const rows = measured(wanted);
  const numbers = distinct(rows.map((r) => Number(r.occurrences))).sort((a, b) => a - b);
  if (!rows.length) {
    empty("occurrences", lacking(wanted) || "No number of occurrences was measured here.", OTHER);
    return;
  }
  drawLines("occurrences", {
    rows, controls, range, title: "occurrences of a member", x: (r) => Math.log2(r.occurrences),
    ticks: numbers.map((n) => ({ at: Math.log2(n), text: String(n) })),
    words: (r) => `${r.occurrences} ×: ${sizes(r)}, ${seedsOf(r)}`,
  });
  caption("occurrences", page.conditions.length > 1 ? `${chosen.condition}.` : "",
    `${what()}. Members at each number of occurrences against all `
    + `${many(rows[0].n_nonmembers, "non-member")}, ${seedsOf(rows[0])}.`, page.band, lacking(wanted));
}

function drawHeat() {
  const own = (r) => r.condition === chosen.condition && r.occurrences === "any";
  const wanted = (r) => own(r) && isShown(r);
  const rows = measured(wanted);
  if (!rows.length) { empty("heat", lacking(wanted), OTHER); return; }
  const control = measured((r) => own(r) && r.checkpoint === "clean" && r.benchmark === "all"
    && !isBlind(r.label) && chosen.checkpoint !== "clean");
  const CLEAN = "all, clean";
  const found = new Map([...rows.map((r) => [`${r.label}\n${r.benchmark}`, r]),
    ...control.map((r) => [`${r.label}\n${CLEAN}`, r])]);
  const names = page.benchmarks.filter((name) => rows.some((r) => r.benchmark === name));
  const columns = [...names.slice(1), ...names.slice(0, 1), ...(control.length ? [CLEAN] : [])];
  const shown = labels.filter((label) => rows.some((r) => r.label === label)).reverse();
  const at = (pick) => shown.map((label) => columns.map((column) => {
    const row = found.get(`${label}\n${column}`);
    return row ? pick(row) : null;
  }));
  show("heat", [{
    type: "heatmap", x: columns.map(plain), y: shown.map(plain), z: at((r) => r.value), zmin: 0, zmax: 1, xgap: 2,
    ygap: 2, colorscale: metric().colours, texttemplate: "%{z:.2f}", showscale: false,
    customdata: at((r) => [r.ci_low, r.ci_high, sizes(r), seedsOf(r)]), hovertemplate:
      "<b>%{y}</b>, %{x}<br>%{z:.3f} [%{customdata[0]:.3f}, %{customdata[1]:.3f}]"
      + "<br>%{customdata[2]}, %{customdata[3]}<extra></extra>",
  }], layoutOf("", "", { xaxis: { showgrid: false, automargin: true, ...(isNarrow() && { tickangle: 60 }) },
    yaxis: { showgrid: false, automargin: true, tickfont: { size: 11 } } }));
  caption("heat", `${metric().title} of all members, ${chosen.checkpoint} model.`,
    metric().scale, "Hover for the interval.", lacking(wanted));
}

function drawRoc() {
  const own = (r) => r.condition === chosen.condition && r.benchmark === chosen.benchmark;
  const rows = curves.filter((r) => own(r) && isColoured(r.label));
  const drawn = labels.filter((label) => rows.some((r) => r.label === label));
  if (!drawn.length) {
    empty("roc", curves.some(own) ? "No method is coloured." : "No curve was measured here.",
      "Choose a method, another condition or benchmark above.");
    return;
  }
  const of = (label, checkpoint) => rows.filter((r) => r.label === label
    && r.checkpoint === checkpoint);
  const words = (r) => `FPR ${r.fpr.toPrecision(2)}: TPR`, x = (r) => r.fpr;
  const clean = chosen.checkpoint === "clean" ? [] : drawn.map((label) => ({
    ...lineOf(label, of(label, "clean"), x, (r) => `clean model, ${words(r)}`, "hv").pop(),
    line: { color: themed("rest"), width: 1, shape: "hv" }, showlegend: false, meta: "control" }));
  const ticks = page.least < 0.02 ? [0.001, 0.01, 0.1, 1] : [0.02, 0.05, 0.1, 0.2, 0.5, 1];
  const tread = (label) => 0.1 * (drawn.indexOf(label) + 0.5) / drawn.length; // of a step, in decades
  const atTick = (r) => r.fpr < 1 && ticks.some((tick) => Math.abs(r.fpr / tick - 1) < 0.03);
  const bars = drawn.map((label) => pointsOf(label, of(label, chosen.checkpoint).filter(atTick),
    (r) => r.fpr * 10 ** tread(label), words));
  const axis = { type: "log", range: [Math.log10(page.least), 0.02], tickvals: ticks,
    ticktext: ticks.map(String) };
  show("roc", [...clean, ...drawn.flatMap((label) =>
    lineOf(label, of(label, chosen.checkpoint), x, words, "hv")), ...bars,
  { x: [page.least, 1], y: [page.least, 1], mode: "lines", showlegend: false, meta: "guess",
    line: { color: themed("grey"), width: 1, dash: "dot" }, hoverinfo: "skip" }],
  layoutOf("false-positive rate", "true-positive rate",
    { xaxis: axis, yaxis: axis }));
  caption("roc", `All members, ${chosen.checkpoint} model, ${overWhat()}.`,
    `Colours as above${clean.length ? "; grey: the clean model" : ""}; dotted: a guess.`,
    page.curveBand);
}

function drawHistogram() {
  const rows = bins.filter((r) => r.condition === chosen.condition && r.label === chosen.scored
    && r.benchmark === chosen.benchmark && r.checkpoint === chosen.checkpoint);
  if (!rows.length) {
    empty("histogram", "No scores were counted here.",
      "Choose another condition or benchmark above.");
    return;
  }
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
  show("histogram", traces, layoutOf("score, in standard deviations of the non-members",
    "share", { barmode: "overlay", bargap: 0, showlegend: true }));
  caption("histogram", `${chosen.scored}, ${chosen.checkpoint} model. Scores are standardised `
    + "within each benchmark and seed; the outermost bins hold all beyond. Bars: 95% Wilson "
    + "intervals of a bin's share.");
}

function drawLoss() {
  const rows = losses.filter((r) => r.condition === chosen.condition);
  figureOf("loss").hidden = !rows.length;
  if (!rows.length) { return; }
  const traces = Object.entries(page.lossSides).flatMap(([side, colour]) => {
    const own = rows.filter((r) => r.side === side), steps = own.map((r) => r.step);
    return [{
      x: [...steps, ...[...steps].reverse()], mode: "lines", fill: "toself", hoverinfo: "skip",
      y: [...own.map((r) => r.high), ...own.map((r) => r.low).reverse()], showlegend: false,
      fillcolor: faint(colour, 0.15), line: { width: 0 }, meta: "band",
    }, {
      x: steps, y: own.map((r) => r.loss), name: side, mode: "lines+markers", meta: "line",
      line: { color: colour, dash: page.lossDashes[side] },
      hovertemplate: `<b>${side}</b><br>step %{x}<br>loss %{y:.3f}<extra></extra>`,
    }];
  });
  const exposed = page.exposures[chosen.condition] || [];
  traces.push({ type: "bar", x: exposed.map((e) => e[0]), y: exposed.map((e) => e[1]),
    name: "copies seen", yaxis: "y2", marker: { color: "#999" },
    hovertemplate: "step %{x}<br>%{y} copies<extra></extra>" });
  const layout = layoutOf("optimizer step", "loss per token",
    { xaxis: { anchor: "y2" }, yaxis: { domain: [0.28, 1] }, showlegend: true });
  layout.yaxis2 = { ...layout.yaxis, domain: [0, 0.2], title: { text: "copies" } };
  show("loss", traces, layout);
  caption("loss", page.lossCaption[chosen.condition] || "");
}

function draw() {
  const off = page.stamps[chosen.condition];
  element("stamp").hidden = !off;
  element("stamp").textContent = off || "";
  const wanted = linesWanted(), { factor, occurrences } = wanted;
  const range = rangeOf([factor, occurrences].flatMap((each) => [
    ...measured(each.wanted), ...each.controls]));
  drawFactor(wanted, range);
  drawOccurrences(wanted, range);
  [drawHeat, drawRoc, drawHistogram, drawLoss].forEach((each) => each());
}
