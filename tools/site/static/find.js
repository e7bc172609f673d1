// The search page: lines of the site that have most of the words that were asked for. PAGES (lines.js): [file, title, last, sections].
"use strict";

const asked = new URLSearchParams(location.search).get("q") || "";
const place = document.getElementById("search-results");
const SHOWN = 40;

const words = (text) => text.toLowerCase().match(/[a-z0-9_.:%-]*[a-z0-9_]/g) || [];

function element(tag, given, ...children) {
  const made = Object.assign(document.createElement(tag), given);
  made.append(...children);
  return made;
}

// A line with the words that were found marked.
function marked(line, wanted) {
  const parts = line.split(/([a-z0-9_.:%-]*[a-z0-9_])/i);
  return parts.map((part, n) => n % 2 && wanted.has(part.toLowerCase()) ? element("mark", {}, part) : part);
}

function find(text) {
  const wanted = new Set(words(text));
  const phrase = text.toLowerCase().trim();
  const lines = [];
  const often = new Map();
  for (const [file, title, last, sections] of PAGES) {
    for (const [anchor, heading, texts] of sections) {
      for (const line of [heading, ...texts]) {
        const own = new Set(words(line));
        const hits = [...wanted].filter((word) => own.has(word));
        for (const word of hits) often.set(word, (often.get(word) || 0) + 1);
        if (hits.length) lines.push({ file, title, last, anchor, heading, line, hits, own });
      }
    }
  }
  for (const found of lines) {
    found.score = found.hits.reduce((sum, word) => sum + 1 / Math.log2(2 + often.get(word)), 0);
    if (found.line.toLowerCase().includes(phrase)) found.score *= 3;
    if (found.line === found.heading) found.score *= 1.5;
    if (found.last) found.score /= 2;
    if (/errors|rules/.test(found.file)) found.score *= 1.3;  // whoever pastes a message asks what it means
    if (found.own.size === found.hits.length && found.line !== found.heading) found.score /= 2;  // it says nothing more
    found.score /= 1 + found.own.size / 200;
  }
  lines.sort((a, b) => b.score - a.score);
  const best = [];
  const of = new Map();
  for (const found of lines) {
    const key = `${found.file}#${found.anchor}`;
    of.set(key, (of.get(key) || 0) + 1);
    if (of.get(key) <= 2 && best.length < SHOWN && found.score > lines[0].score / 8) best.push(found);
  }
  return [best, wanted];
}

function cut(line, wanted) {
  const at = Math.max(0, ...[...wanted].map((word) => line.toLowerCase().indexOf(word)));
  const from = line.length > 240 ? Math.max(0, Math.min(at - 80, line.length - 240)) : 0;
  return (from ? "\u2026 " : "") + line.slice(from, from + 240) + (from + 240 < line.length ? " \u2026" : "");
}

function show() {
  const input = document.querySelector("#search-documentation, .sidebar-search");
  if (input) input.value = asked;
  if (!asked.trim()) return;
  const [best, wanted] = find(asked);
  const items = best.map(({ file, title, anchor, heading, line }) => element("li", {},
    element("a", { href: anchor ? `${file}#${anchor}` : file }, heading && heading !== title ? `${title}: ${heading}` : title),
    element("p", { className: "line" }, ...marked(cut(line, wanted), wanted))));
  const many = best.length === 1 ? "1 place" : `${best.length} places`;
  place.replaceChildren(
    element("p", { role: "status" }, best.length ? `${many}, the likeliest first` : "No line has one of these words."),
    element("ol", { className: "found" }, ...items));
}

show();
