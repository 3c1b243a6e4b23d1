"use strict";
// Each text is a list box of its tokens: one stop of the Tab key, and the arrows move inside it.
const page = JSON.parse(document.getElementById("data").textContent);
const element = (id) => document.getElementById(id);
const distinct = (values) => [...new Set(values)];
const names = Object.keys(page.numbers);
const all = "all";
const chosen = { number: names[0], kind: all, benchmark: all, occurrences: all, sort: "listed" };
const current = {};  // focus: the token that has it, unless Escape has hidden its values

// Entry i of a number is of token i + 1: the first token is never scored.
function valueOf(example, name, token) {
  if (token < 1) { return undefined; }
  if (name === "rank") {
    const top = example.top[token - 1];
    return top === undefined ? undefined : Number(top === page.firstChoice);
  }
  const value = (example.numbers[name] || [])[token - 1];
  return value === undefined ? undefined : value / page.perUnit;
}

const formatNumber = (value) => value.toFixed(3).replace("-", "−");

// The text of a token; invisible characters are replaced by their code points.
function visible(text) {
  if (!text) { return "part of the character before it"; }
  const code = (c) => `U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
  const plain = text.replace(/ /g, "␣").replace(/\n/g, "↵").replace(/\t/g, "⇥");
  return `“${plain.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, code)}”`;
}

// The same for screen readers.
const spoken = (words) => words.replace("“␣”", "space").replace("“␣", "“").replace(/␣/g, " ").replace(/↵/g, "new line");

// Pairs of a number's name and its value for a token.
function valuesOf(example, token) {
  if (token === 0) { return [["", "the first token: not scored"]]; }
  const rows = names.filter((name) => name !== "rank").flatMap((name) => {
    const value = valueOf(example, name, token);
    return value === undefined ? [] : [[name, formatNumber(value)]];
  });
  if (!rows.length) { return [["", "beyond the model's context: not scored"]]; }
  const logprob = valueOf(example, "logprob", token), top = example.top[token - 1];
  if (top !== undefined) { rows.push(["rank", top === page.firstChoice ? "yes" : `no, ${visible(page.words[top])} is`]); }
  return [["", `probability ${Math.exp(logprob).toPrecision(2)}`], ...rows];
}

function makeToken(text, token) {
  const span = document.createElement("span");
  span.setAttribute("role", "option");
  span.dataset.token = token;
  span.tabIndex = -1;
  span.textContent = text;
  if (!text) { span.className = "empty"; span.setAttribute("aria-label", visible(text)); }
  if (text.includes("\n")) { span.classList.add("line"); }
  return span;
}

function makeArticle(example, place) {
  const article = document.createElement("article"), head = document.createElement("h2");
  article.className = example.kind.replace(" ", "-");
  const kind = document.createElement("span"), name = document.createElement("bdi");
  kind.className = "kind";
  kind.textContent = example.kind;
  name.textContent = example.id;
  const small = document.createElement("small"), scored = example.numbers.logprob.length;
  const of = example.tokens.length - 2;  // without the first, and what follows the last
  small.textContent = [example.benchmark, example.occurrences === null ? ""
    : `${example.occurrences} occurrence${example.occurrences === 1 ? "" : "s"}`,
  `${scored < of ? `${scored} of ${of}` : scored} scored tokens`].filter(Boolean).map((part) => ` · ${part}`).join("");
  head.id = `example-${place}`;
  head.append(kind, " ", name, small);
  const text = document.createElement("div"), list = document.createElement("span");
  text.className = "text";
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-orientation", "horizontal");
  list.setAttribute("aria-labelledby", head.id);
  example.tokens.slice(0, -1).forEach((piece, i) => {
    const apart = /^ \S/.test(piece) ? 1 : 0;  // a space before a word is not shaded
    if (i || piece) { list.append(piece.slice(0, apart), makeToken(piece.slice(apart), i)); }
  });
  if (list.firstElementChild) { list.firstElementChild.tabIndex = 0; }
  text.append(list, example.tokens[example.tokens.length - 1]);
  const scores = document.createElement("p");
  scores.className = "scores";
  scores.textContent = [...Object.entries(example.scores).map(([method, score]) =>
    `${method} ${formatNumber(score)}`), ...example.flags].join(" · ");
  article.append(head, scores, text);
  article.dataset.place = place;
  return article;
}

// Texts are shaded when they come near the window: shading all long texts at once would take seconds.
const near = new Set();
const watcher = new IntersectionObserver((entries) => entries.forEach(({ target, isIntersecting }) => {
  if (isIntersecting) { near.add(target); shade(target); } else { near.delete(target); }
}), { rootMargin: "1000px" });

function shade(article) {
  if (article.dataset.shaded === chosen.number) { return; }
  article.dataset.shaded = chosen.number;
  const example = page.examples[Number(article.dataset.place)], { full } = page.numbers[chosen.number];
  article.querySelectorAll("[data-token]").forEach((span) => {
    const value = valueOf(example, chosen.number, Number(span.dataset.token));
    span.style.setProperty("--by", `${Math.round(100 * Math.min(1, Math.abs(value || 0) / full))}%`);
    span.classList.toggle("low", value < 0);
  });
}

function shadeAll(shown) {
  shown.forEach(shade);
  legend(page.numbers[chosen.number]);
}

function legend(number) {
  const isRank = chosen.number === "rank";  // yes or no: two colours and no scale
  const from = isRank ? 0 : -number.full, to = chosen.number === "logprob" ? 0 : number.full;
  const stops = isRank ? ["var(--page) 50%", "var(--high) 50%"]
    : [from && "var(--low)", "var(--page)", to && "var(--high)"].filter(Boolean);
  const end = (value) => String(Number(value.toPrecision(2))).replace("-", "−");
  element("bar").style.background = `linear-gradient(to right, ${stops.join(", ")})`;
  element("low").textContent = `${number.low}${isRank ? "" : `, ${end(from)}`}`;
  element("high").textContent = `${isRank ? "" : `${end(to)}, `}${number.high}`;
  element("meaning").textContent = number.meaning;
}

function isShown(example) {
  const fits = (name) => chosen[name] === all || String(example[name]) === chosen[name];
  return fits("kind") && fits("benchmark") && (example.kind !== "member" || fits("occurrences"));
}

// Members and non-members alternate, each in the chosen order.
function arrange() {
  const [method, direction] = chosen.sort.split("\n");
  const order = page.examples.map((_, place) => place);
  if (direction) {
    const sign = direction === "high" ? -1 : 1;
    const score = (place) => sign * page.examples[place].scores[method];
    order.sort((a, b) => score(a) - score(b));
  }
  const shown = order.filter((place) => isShown(page.examples[place]));
  const kinds = distinct(page.examples.map((example) => example.kind));
  const groups = kinds.map((kind) => shown.filter((place) => page.examples[place].kind === kind));
  const turns = Math.max(0, ...groups.map((group) => group.length));
  const turned = Array.from({ length: turns }, (_, i) => groups.flatMap((group) => group.slice(i, i + 1)));
  element("examples").replaceChildren(...turned.flat().map((place) => articles[place]));
  const both = ["member", "non-member"].every((kind) => (groups[kinds.indexOf(kind)] || []).length);
  element("examples").classList.toggle("beside", both);
  element("count").textContent = shown.length ? groups.map((group, i) =>
    `${group.length} ${kinds[i] === "no label" ? "without a label" : `${kinds[i]}${group.length === 1 ? "" : "s"}`}`)
    .join(", ") + "." : "No example matches. Choose “all” in one of the lists above.";
}

function tokenAt(node) {
  const span = node.closest && node.closest("[data-token]");
  if (!span) { return null; }
  const place = Number(span.closest("article").dataset.place);
  return { span, example: page.examples[place], token: Number(span.dataset.token) };
}

const titleOf = (name) => (name ? page.numbers[name].title : "");

function show(target) {
  const { span, example, token } = target, tip = element("tip");
  const head = document.createElement("b"), table = document.createElement("table");
  head.textContent = visible(example.tokens[token]);
  valuesOf(example, token).forEach(([name, words]) => {
    const row = table.insertRow();
    row.className = name === chosen.number ? "now" : "";
    if (name) { row.insertCell().textContent = titleOf(name); }
    const cell = row.insertCell();
    cell.textContent = words;
    if (!name) { cell.colSpan = 2; cell.style.textAlign = "left"; }
  });
  tip.replaceChildren(head, table);
  tip.hidden = false;
  const box = span.getClientRects()[0] || span.getBoundingClientRect(), tipBox = tip.getBoundingClientRect();
  const below = box.bottom + 6 + tipBox.height < innerHeight;
  tip.style.left = `${Math.max(4, Math.min(box.left, innerWidth - tipBox.width - 4))}px`;
  tip.style.top = `${below ? box.bottom + 6 : Math.max(4, box.top - tipBox.height - 6)}px`;
}

// The values of the token that has the focus, while it is in the window; else none.
function showCurrent() {
  const box = current.focus && current.focus.span.getBoundingClientRect();
  if (box && box.bottom > 0 && box.top < innerHeight) { show(current.focus); } else { element("tip").hidden = true; }
}

function read({ example, token }) {
  const words = valuesOf(example, token).map(([name, value]) => `${titleOf(name)} ${value}`.trim());
  element("said").textContent = spoken(`${visible(example.tokens[token])}: ${words.join(", ")}; `
    + `token ${token + 1} of ${example.tokens.length - 1}`);
}

// The token on the line above or below that is nearest to this one's middle.
function onNextLine(span, direction) {
  const box = span.getBoundingClientRect(), middle = (box.left + box.right) / 2;
  const spans = [...span.parentElement.querySelectorAll("[data-token]")];
  const rest = direction > 0 ? spans.slice(spans.indexOf(span) + 1) : spans.slice(0, spans.indexOf(span)).reverse();
  const height = (other) => other.getBoundingClientRect().top;
  const first = rest.find((other) => Math.abs(height(other) - box.top) > 4);
  const distance = (other) => {
    const { left, right } = other.getBoundingClientRect();
    return Math.abs((left + right) / 2 - middle);
  };
  return first && rest.filter((other) => Math.abs(height(other) - height(first)) <= 4)
    .reduce((best, other) => (distance(other) < distance(best) ? other : best));
}

function go(event) {
  const target = tokenAt(event.target);
  if (event.key === "Escape") { current.focus = null; showCurrent(); }
  if (!target) { return; }
  const { span } = target, spans = [...span.parentElement.querySelectorAll("[data-token]")];
  const place = spans.indexOf(span);
  const next = { ArrowRight: () => spans[place + 1], ArrowLeft: () => spans[place - 1],
    ArrowDown: () => onNextLine(span, 1), ArrowUp: () => onNextLine(span, -1),
    Home: () => spans[0], End: () => spans[spans.length - 1] }[event.key];
  if (!next || event.ctrlKey || event.metaKey || event.altKey) { return; }
  event.preventDefault();
  const to = next();
  if (to) { to.focus(); }
}

function focused(event) {
  const target = tokenAt(event.target);
  if (!target) { return; }
  target.span.parentElement.querySelectorAll("[tabindex='0']").forEach((span) => {
    span.tabIndex = -1;
    span.removeAttribute("aria-selected");
  });
  target.span.tabIndex = 0;
  target.span.setAttribute("aria-selected", "true");
  current.focus = target;
  show(target);
  read(target);
}

function listen() {
  const main = element("examples");
  main.addEventListener("mouseover", (event) => {
    const target = tokenAt(event.target);
    if (target) { show(target); }
  });
  main.addEventListener("mouseout", showCurrent);
  main.addEventListener("focusin", focused);
  main.addEventListener("focusout", () => { current.focus = null; showCurrent(); });
  main.addEventListener("click", (event) => {
    const target = tokenAt(event.target);
    if (target) { target.span.focus(); }
  });
  document.addEventListener("keydown", go);
  addEventListener("beforeprint", () => shadeAll(articles));
  addEventListener("scroll", showCurrent);
}

// A list with one choice is hidden.
function fill(id, options) {
  const select = element(id);
  options.forEach(([value, text]) => select.add(new Option(text, value)));
  const fromUrl = new URLSearchParams(location.hash.slice(1)).get(id);
  if (options.some(([value]) => value === fromUrl)) { chosen[id] = fromUrl; }
  select.value = chosen[id];
  select.parentElement.hidden = options.length < 2;
  select.addEventListener("change", () => {
    chosen[id] = select.value;
    history.replaceState(null, "", `#${new URLSearchParams(chosen)}`);
    if (id === "number") { shadeAll(near); } else { arrange(); }
  });
}

function filter(name, examples) {
  const present = distinct(examples.map((example) => example[name])).filter((v) => v !== null && v !== "");
  const values = present.sort((a, b) => (typeof a === "number" ? a - b : a.localeCompare(b)));
  fill(name, values.length > 1 ? [[all, all], ...values.map((v) => [String(v), String(v)])] : [[all, all]]);
}

function start() {
  fill("number", names.map((name) => [name, page.numbers[name].title]));
  filter("kind", page.examples);
  filter("benchmark", page.examples);
  filter("occurrences", page.examples.filter((example) => example.kind === "member"));
  const methods = Object.keys((page.examples[0] || { scores: {} }).scores);
  fill("sort", [["listed", "as listed"], ...methods.flatMap((method) =>
    [["high", "highest"], ["low", "lowest"]].map(([way, word]) => [`${method}\n${way}`, `${method}, ${word} first`]))]);
  articles.forEach((article) => watcher.observe(article));
  shadeAll(near);
  arrange();
  listen();
  document.body.dataset.ready = "true";
}

const articles = page.examples.map(makeArticle);
start();
