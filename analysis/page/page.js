// The controls: selections, chips, light or dark; each change redraws and is in the address.
function changed() {
  Object.keys(options).forEach((key) => { if (element(`choose-${key}`)) {
    element(`choose-${key}`).value = chosen[key];
  } });
  document.querySelectorAll("#methods button[data-value]").forEach((button) =>
    button.setAttribute("aria-pressed", String(chosen.methods.has(button.dataset.value))));
  document.querySelectorAll("#benchmarks button").forEach((button) =>
    button.setAttribute("aria-pressed", String(chosen.benchmark === button.dataset.value)));
  draw();
}

function change(make) {
  make();
  writeAddress();
  changed();
}

function fill(key) {
  const select = element(`choose-${key}`);
  options[key].forEach(([value, text]) => select.add(new Option(text, value)));
  select.addEventListener("change", () => change(() => { chosen[key] = select.value; }));
}

function button(parent, text, click) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.addEventListener("click", () => change(click));
  element(parent).append(made);
  return made;
}

function methodChip(label) {
  const chip = button("methods", "", () => {
    if (!chosen.methods.delete(label)) { chosen.methods.add(label); }
  });
  const dot = document.createElement("i");
  dot.style.background = lookOf[label].colour;
  chip.append(dot, label);
  chip.dataset.value = label;
  chip.title = page.summaries[label] || "";
  ["pointerenter", "focus"].forEach((way) => chip.addEventListener(way, () => point(label)));
  ["pointerleave", "blur"].forEach((way) => chip.addEventListener(way, () => point("")));
}

function methodSet(text, methods) {
  button("methods", text, () => { chosen.methods = new Set(methods); }).className = "plain";
}

// What the browser keeps from visit to visit; nothing where it refuses, as some do from disk.
const THEME = "contamination-testbed-theme";
function remembered() {
  try { return localStorage.getItem(THEME); } catch { return null; }
}
function remember(theme) {
  try { localStorage.setItem(THEME, theme); } catch { /* then for this visit only */ }
}

// Light or dark: as the reader's system has it, until chosen in some report.
function startTheme() {
  const root = document.documentElement, dark = window.matchMedia("(prefers-color-scheme: dark)");
  const known = remembered();
  if (known === "light" || known === "dark") { root.dataset.theme = known; }
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  element("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    remember(root.dataset.theme);
    draw();
  });
  dark.addEventListener("change", draw);
  printLight(root);
}

// Paper is white, whatever the screen is, and three charts fit on a page.
function printLight(root) {
  let before;
  window.addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    root.dataset.theme = "light";
    root.dataset.print = "true";
    draw();
  });
  window.addEventListener("afterprint", () => {
    delete root.dataset.print;
    if (before) { root.dataset.theme = before; } else { delete root.dataset.theme; }
    draw();
  });
}

function start() {
  ["condition", "checkpoint", "metric", "factor", "scored"].forEach(fill);
  options.benchmark.forEach(([name]) => {
    button("benchmarks", name, () => { chosen.benchmark = name; }).dataset.value = name;
  });
  methodLabels.forEach(methodChip);
  if (page.highlighted.length < methodLabels.length) {
    methodSet(`best ${page.highlighted.length}`, page.highlighted);
  }
  methodSet("all", methodLabels);
  methodSet("none", []);
  startTheme();
  document.querySelectorAll("nav a").forEach((link) => link.addEventListener("click", (event) => {
    event.preventDefault(); // the address keeps what is chosen
    document.querySelector(link.getAttribute("href")).scrollIntoView();
  }));
  window.addEventListener("hashchange", () => { readAddress(); changed(); });
  let wait;
  window.addEventListener("resize", () => { clearTimeout(wait); wait = setTimeout(draw, 200); });
  readAddress();
  changed();
  document.body.dataset.ready = "true";
}

start();
