"use strict";
// What the page holds, what the reader has chosen, and the address that says so.
const page = JSON.parse(document.getElementById("data").textContent);
const element = (id) => document.getElementById(id);
const distinct = (values) => [...new Set(values)];

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
const labels = page.methods.map((each) => each.label);
const lookOf = Object.fromEntries(page.methods.map((each) => [each.label, each]));
const methodLabels = labels.filter((label) => !lookOf[label].blind);
const blindLabels = labels.filter((label) => lookOf[label].blind);

// Names without the parts that all begin with: a narrow selection shows what tells them apart.
function ends(names) {
  const parts = names.map((name) => name.split("-"));
  const most = names.length > 1 ? Math.min(...parts.map((each) => each.length)) - 1 : 0;
  let shared = 0;
  while (shared < most && distinct(parts.map((each) => each[shared])).length === 1) { shared += 1; }
  return parts.map((each) => (shared ? "… " : "") + each.slice(shared).join("-"));
}
const ended = ends(page.conditions);

// Each selection's values with their words, the first being what is chosen at the start.
const options = {
  condition: page.conditions.map((name, i) => [name, ended[i]]),
  checkpoint: [["contaminated", "contaminated"], ["clean", "clean (control)"]],
  metric: Object.entries(page.metrics).map(([name, { title }]) => [name, title]),
  benchmark: page.benchmarks.map((name) => [name, name]),
  factor: page.factors.map((each, i) => [String(i), each.name]),
  scored: page.scored.map((label) => [label, label]),
};
const standard = Object.fromEntries(Object.entries(options).map(([k, v]) => [k, (v[0] || [""])[0]]));
const chosen = { ...standard, methods: new Set(page.highlighted) };

// The address: what differs from the start, so that a link shows what the reader sees.
const SEPARATOR = "|";
const inOrder = (methods) => labels.filter((label) => methods.has(label)).join(SEPARATOR);

function writeAddress() {
  const kept = Object.keys(standard).filter((key) => chosen[key] !== standard[key])
    .map((key) => [key, chosen[key]]);
  const methods = inOrder(chosen.methods);
  if (methods !== inOrder(new Set(page.highlighted))) { kept.push(["methods", methods]); }
  history.replaceState(null, "", `#${new URLSearchParams(kept)}`);
}

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  Object.assign(chosen, standard, { methods: new Set(page.highlighted) });
  Object.entries(options).forEach(([key, values]) => {
    if (values.some(([value]) => value === given.get(key))) { chosen[key] = given.get(key); }
  });
  if (given.has("methods")) {
    const named = given.get("methods").split(SEPARATOR);
    chosen.methods = new Set(methodLabels.filter((label) => named.includes(label)));
  }
}

// Estimates of the chosen metric; those that the examples can't carry have no value.
const asked = (more) => estimates.filter((r) => r.metric === chosen.metric && more(r));
const measured = (more) => asked(more).filter((r) => r.value !== null);
function lacking(more) {
  const said = distinct(asked((r) => r.needs && more(r)).map(why));
  return said.length ? `Not shown: ${said.join("; ")}.` : "";
}
function why(r) {
  if (!r.n_members) { return "no members, so nothing to detect"; }
  if (!r.n_nonmembers) { return "no non-members, so nothing to compare the members with"; }
  return `${r.benchmark} (${sizes(r)}) needs ${r.needs}`;
}
const many = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
const sizes = (r) => `${many(r.n_members, "member")}, ${many(r.n_nonmembers, "non-member")}`;
const seedsOf = (r) => many(r.n_seeds, "seed");
const metric = () => page.metrics[chosen.metric];
const isBlind = (label) => lookOf[label].blind;
const isShown = (r) => r.checkpoint === (isBlind(r.label) ? "clean" : chosen.checkpoint);
const isColoured = (label) => isBlind(label) || chosen.methods.has(label);
const overWhat = () => (chosen.benchmark === "all" ? "mean over benchmarks" : chosen.benchmark);
const what = () => `${metric().title}, ${overWhat()}, ${chosen.checkpoint} model`;
