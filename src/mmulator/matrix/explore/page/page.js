// The explorer's page. It computes no layout, no number format and no sum: it shows tables that the package made.
//
// A view has parameters, each with choices that depend on those before it: a tree, `view.choices`. The values are in the
// page's address, so a link holds what is shown. A document is a list of blocks; DRAW has a function for each kind of block.
"use strict";

const $ = (id) => document.getElementById(id);
const FILES = document.documentElement.dataset.tables === "files";  // no server: tables are scripts beside this page
let index, shown = 0;

// An element. Given: attributes; a function is a listener; children are elements or texts.
function el(tag, given = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

// Tables -------------------------------------------------------------------------------------------------------------
const arrived = new Map(), waiting = new Map();
window.table = (name, value) => waiting.get(name)(value);  // what a script of tables calls

function script(name) {
  if (!arrived.has(name)) {
    arrived.set(name, new Promise((done, failed) => {
      waiting.set(name, done);
      document.head.append(el("script", { src: `data/${name}.js`, error: () => failed(new Error(`data/${name}.js is missing`)) }));
    }));
  }
  return arrived.get(name);
}

async function ask(view, state, leaf) {
  if (FILES) {
    const pack = await script(`documents-${Math.floor(leaf / index.packed)}`);
    return Promise.all(pack[leaf % index.packed].map((block) => "file" in block ? script(`block-${block.file}`) : block));
  }
  const names = [...view.parameters, ...view.free].map(([name]) => name).filter((name) => state[name]);
  const found = await (await fetch(`api/${view.name}?` + new URLSearchParams(names.map((name) => [name, state[name]])))).json();
  return found.blocks || [{ kind: "wrong", error: found.error, hint: found.hint }];
}

// State: the address ---------------------------------------------------------------------------------------------------
function read() {
  const [name, query] = location.hash.slice(1).split("?");
  return { view: index.views.find((view) => view.name === name) || index.views[0], state: Object.fromEntries(new URLSearchParams(query)) };
}

function link(view, state) {
  return `#${view.name}?` + new URLSearchParams(Object.entries(state).filter(([, value]) => value));
}

// Change the address; a change of a slider makes no step to go back to.
function go(changes, back = true) {
  const { view, state } = read();
  const address = link(view, { ...state, ...changes });
  if (back) location.hash = address;
  else history.replaceState(null, "", address);
}

// Controls -------------------------------------------------------------------------------------------------------------
function options(select, values, chosen) {
  const texts = JSON.stringify(values);
  if (select.dataset.values !== texts) {
    select.replaceChildren(...values.map(([value, label]) => el("option", { value }, label)));
    select.dataset.values = texts;
  }
  select.value = chosen;
}

function control(name, label, make) {
  let found = $(`control-${name}`);
  if (!found) {
    found = make();
    found.id = `control-${name}`;
    $("controls").append(el("label", {}, label, found));
  }
  return found;
}

// Which values there are on the chip, and have all words of the search in their names.
function fitting(view, tree, name, state) {
  const device = index.devices.findIndex(([sm]) => sm === state.chip);
  const words = (name === "instruction" && state.find || "").toLowerCase().split(/\s+/);
  const runs = (value, rest) => value in view.chips ? device < 0 || view.chips[value] >> device & 1
    : rest === null || typeof rest !== "object" || Object.entries(rest).some(([next, more]) => runs(next, more));
  return Object.keys(tree).filter((value) => words.every((word) => value.toLowerCase().includes(word)) && runs(value, tree[value]));
}

// Draw the controls; returns what is chosen in full, and the leaf of the tree.
function controls(view, state) {
  if ($("controls").dataset.view !== view.name) {
    $("controls").replaceChildren();
    $("controls").dataset.view = view.name;
  }
  let tree = view.choices;
  const full = { ...state };
  for (const [name, label] of view.parameters) {
    if (name === "instruction") {
      const find = control("find", "Find an instruction", () => el("input", {
        type: "search", placeholder: "m16n8k16 bf16", autocomplete: "off", input: (event) => { go({ find: event.target.value }, false); show(); } }));
      if (document.activeElement !== find) find.value = state.find || "";
    }
    let values = fitting(view, tree, name, state);
    const none = !values.length;
    if (none) values = Object.keys(tree);
    full[name] = values.includes(state[name]) ? state[name] : values[0];
    const select = control(name, label, () => el("select", { change: (event) => go({ [name]: event.target.value }) }));
    options(select, values.map((value) => [value, value]), full[name]);
    if (name === "instruction") select.setCustomValidity(none ? "none fits: all are shown" : "");
    select.parentElement.hidden = values.length < 2 && full[name] === "as it is";
    select.parentElement.classList.toggle("wide", values.some((value) => value.length > 22));
    tree = tree[full[name]];
  }
  for (const [name, label, example] of FILES ? [] : view.free) {
    const input = control(name, label, () => el("input", {
      type: "text", placeholder: example, autocomplete: "off", spellcheck: "false", change: (event) => go({ [name]: event.target.value }) }));
    if (document.activeElement !== input) input.value = state[name] || "";
  }
  return { full, leaf: tree };
}

// Blocks ---------------------------------------------------------------------------------------------------------------
const frame = (table) => el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": table.caption?.textContent || "table" }, table);
const header = (text, scope, span = 1) => el("th", { scope, colspan: span > 1 && span }, String(text));

function plain(block) {
  return frame(el("table", {}, el("caption", {}, block.caption),
    el("thead", {}, el("tr", {}, ...block.columns.map((name) => header(name, "col")))),
    el("tbody", {}, ...block.rows.map((row) => el("tr", {}, ...row.map((cell, n) => n ? el("td", {}, cell) : header(cell, "row")))))));
}

const DRAW = {
  text: (block) => el("div", {}, ...block.lines.map((line) => el("p", {}, line))),
  wrong: (block) => el("div", { class: "wrong", role: "alert" }, el("p", {}, block.error), el("p", {}, block.hint)),
  code: (block) => el("section", {}, el("h3", {}, block.caption), el("pre", { tabindex: 0 }, block.source)),
  facts: (block) => el("section", {}, ...(block.caption ? [el("h3", {}, block.caption)] : []),
    el("dl", {}, ...block.rows.flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]))),
  table: plain,
  cells: (block) => keyboard(frame(el("table", { class: "cells" }, el("caption", {}, block.caption),
    el("thead", {}, el("tr", {}, header(block.corner, "col"), ...block.columns.map((name) => header(name, "col")))),
    el("tbody", {}, ...block.rows.map(([name, cells]) => el("tr", {}, header(name, "row"),
      ...cells.map(([text, hue, tip], n) => el("td", { class: hue === null ? "none" : `l${hue}`, "data-said": `${name} ${block.columns[n]}: ${tip || text || "-"}` }, text)))))))),
  grid,
};

// A grid: one table by rows and columns, one by lanes; one lane and one register can be marked.
function grid(block) {
  const { state } = read(), per = block.items.length;
  const lane = (place) => Math.floor(place / per), item = (place) => block.items[place % per];
  const holders = (cell) => Array.isArray(cell) ? cell : [cell];
  const [down, right] = block.run;
  const span = (first, many) => many > 1 ? `${first}-${first + many - 1}` : `${first}`;
  const where = (place) => `lane ${lane(place)}, ${block.where} ${item(place)[1]}, bits ${item(place)[2]} (${item(place)[0]})`;
  const said = (copy, row, column, cells) => `${block.cells.length > 1 ? `matrix ${copy}, ` : ""}row ${span(row, down)}, ` +
    `${block.column} ${span(column, right)}: ` + cells.map((cell) => holders(cell).map(where).join(" and ")).join("; ");
  const cell = (copy, row, column) => {
    const held = [];
    for (let r = row; r < row + down; r++) held.push(...block.cells[copy][r].slice(column, column + right));
    const first = holders(held[0]);
    return el("td", {
      class: `l${lane(first[0]) % 32}`, "data-lanes": first.map(lane).join(" "),
      "data-registers": [...new Set(held.flatMap(holders).map((place) => item(place)[1]))].join(" "),
      "data-said": said(copy, row, column, held),
    }, first.map((place) => `${block.short}${lane(place)} ${block.labels[place % per]}`).join(", "));
  };
  const byMatrix = (copy) => {
    const columns = [...block.cells[copy][0].keys()].filter((n) => n % right === 0);
    const rows = [...block.cells[copy].keys()].filter((n) => n % down === 0);
    const spans = block.spans.length ? [el("tr", {}, header("columns of A", "row"),
      ...columns.map((n) => header(`${block.spans[n][0]}-${block.spans[n + right - 1][1]}`, "col")))] : [];
    return el("table", { class: "cells" }, el("caption", {}, block.cells.length > 1 ? `matrix ${copy}` : "by row and column"),
      el("thead", {}, ...spans, el("tr", {}, header(`row \\ ${block.column}`, "col"), ...columns.map((n) => header(span(n, right), "col")))),
      el("tbody", {}, ...rows.map((row) => el("tr", {}, header(span(row, down), "row"), ...columns.map((column) => cell(copy, row, column))))));
  };
  const byLane = () => {
    const held = new Map();
    block.cells.forEach((rows, copy) => rows.forEach((cells, row) => cells.forEach((c, column) => holders(c).forEach((place) =>
      held.set(place, `${block.cells.length > 1 ? `${copy}:` : ""}${row},${column}`)))));
    return el("table", { class: "cells" }, el("caption", {}, `by lane: row,${block.column} of each element`),
      el("thead", {}, el("tr", {}, header(`lane \\ ${block.where}`, "col"),
        ...block.items.map(([name, register, bits]) => header(`${register} [${bits}] ${name}`, "col")))),
      el("tbody", {}, ...Array.from({ length: block.lanes }, (_, n) => el("tr", {}, header(`${block.short}${n}`, "row"),
        ...block.items.map(([name, register], i) => {
          const text = held.get(n * per + i);
          return el("td", { class: text === undefined ? "none" : `l${n % 32}`, "data-lanes": n, "data-registers": register,
            "data-said": text === undefined ? `${where(n * per + i)}: not used` : `${where(n * per + i)}: row,${block.column} ${text}` }, text ?? "-");
        })))));
  };
  const tables = state.by === "lane" ? [byLane()] : [...block.cells.keys()].map(byMatrix);
  const body = el("div", { class: "beside" }, ...tables.map(frame));
  const mark = () => {
    const { state } = read();
    const wanted = ["lane", "register"].filter((name) => state[name]).map((name) => `[data-${name}s~="${CSS.escape(state[name])}"]`).join("");
    body.querySelectorAll(".marked").forEach((td) => td.classList.remove("marked"));
    if (wanted) body.querySelectorAll(`td${wanted}`).forEach((td) => td.classList.add("marked"));
    for (const table of tables) table.classList.toggle("some", wanted !== "");
  };
  const slider = (name, many, label) => {
    const text = (value) => value < 0 ? "all" : `${name} ${value}`;
    const output = el("output", {}, text(state[name] ?? -1));
    const input = el("input", { type: "range", min: -1, max: many - 1, value: state[name] ?? -1, "aria-valuetext": text(state[name] ?? -1), input: (event) => {
      const value = event.target.value;
      output.value = text(value);
      event.target.setAttribute("aria-valuetext", text(value));
      go({ [name]: value < 0 ? "" : value }, false);
      mark();
    } });
    return el("label", {}, label, input, output);
  };
  const by = (value, label) => el("label", {}, el("input", { type: "radio", name: "by", value, checked: (state.by || "") === value, change: () => go({ by: value }) }), label);
  mark();
  const registers = 1 + Math.max(...block.items.map(([, register]) => register));
  return el("section", {}, el("div", { class: "tools", role: "group", "aria-label": "The table" },
    by("", "by row and column"), by("lane", "by lane"), slider("lane", block.lanes, "Lane"),
    slider("register", registers, block.where === "column" ? "Column" : "Register")), keyboard(body));
}

// Cells of a table can be walked through with the arrow keys; what a cell means is said below, and to screen readers.
function keyboard(box) {
  for (const table of box.querySelectorAll("table.cells")) {
    table.setAttribute("role", "grid");
    const first = table.querySelector("td");
    if (first) first.tabIndex = 0;
  }
  const move = (td) => {
    td.closest("table").querySelector("td[tabindex='0']")?.setAttribute("tabindex", -1);
    td.tabIndex = 0;
    td.focus();
  };
  const said = (event) => { const td = event.target.closest("td"); if (td) $("said").textContent = td.dataset.said || td.textContent; };
  box.addEventListener("focusin", said);
  box.addEventListener("mouseover", said);
  box.addEventListener("click", (event) => { const td = event.target.closest("td"); if (td) move(td); });
  box.addEventListener("keydown", (event) => {
    const td = event.target.closest("td"), row = td?.parentElement, rows = row?.parentElement.rows, at = td?.cellIndex;
    if (!td) return;
    const next = { ArrowRight: () => row.cells[at + 1], ArrowLeft: () => row.cells[at - 1], Home: () => row.cells[1],
      End: () => row.cells[row.cells.length - 1], ArrowDown: () => rows[row.sectionRowIndex + 1]?.cells[at],
      ArrowUp: () => rows[row.sectionRowIndex - 1]?.cells[at] }[event.key];
    if (!next) return;
    event.preventDefault();
    const to = next();
    if (to && to.tagName === "TD") move(to);
  });
  return box;
}

// The page -------------------------------------------------------------------------------------------------------------
async function show() {
  const turn = ++shown, { view, state } = read();
  document.title = `${view.title} - mmulator explorer`;
  $("title").textContent = view.title;
  $("about").textContent = view.about;
  $("views").replaceChildren(...index.views.map((v) => el("a", {
    href: link(v, { chip: state.chip }), "aria-current": v === view && "page" }, v.title)));
  $("chip").parentElement.hidden = !Object.keys(view.chips).length;
  options($("chip"), [["", "any"], ...index.devices.map(([sm, chips]) => [sm, `${sm} (${chips})`])], state.chip || "");
  const { full, leaf } = controls(view, state);
  $("document").setAttribute("aria-busy", "true");
  let blocks;
  try {
    blocks = await ask(view, full, leaf);
  } catch (error) {
    blocks = [{ kind: "wrong", error: error.message, hint: FILES ? "the folder data belongs beside this page" : "is the server still there?" }];
  }
  if (turn !== shown) return;  // the reader has gone on
  $("document").replaceChildren(...blocks.map((block) => DRAW[block.kind](block)));
  $("document").setAttribute("aria-busy", "false");
}

function theme(value) {
  if (value) document.documentElement.dataset.theme = value;
  else delete document.documentElement.dataset.theme;
  $("theme").value = value;
}

function kept(value) {  // a browser may refuse to keep anything
  try { return value === undefined ? localStorage.getItem("theme") || "" : localStorage.setItem("theme", value); } catch { return ""; }
}

async function start() {
  theme(kept());
  $("theme").addEventListener("change", (event) => { theme(event.target.value); kept(event.target.value); });
  $("chip").addEventListener("change", (event) => go({ chip: event.target.value }));
  $("controls").addEventListener("submit", (event) => event.preventDefault());
  $("skip").addEventListener("click", (event) => { event.preventDefault(); $("main").focus(); });
  index = FILES ? await script("index") : await (await fetch("index.json")).json();
  $("version").textContent = `mmulator ${index.version}`;
  window.addEventListener("hashchange", show);
  await show();
}

start();
