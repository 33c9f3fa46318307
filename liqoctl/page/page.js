"use strict";
// Text of the cluster is written by textContent only: others write it, providers among them.
const panels = new Map(); // name -> {version, start, shown}
const byId = (id) => document.getElementById(id);
const ABOUT = { pods: [0, 1], namespaces: [0] }; // cells by which liqoctl why is asked

function made(name, text, attributes = {}) {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

function row(name, told) {
  const line = made("tr", undefined, told.tone ? { class: told.tone } : {});
  told.cells.forEach((text, number) => {
    const cell = number === 0 ? made("th", undefined, { scope: "row" }) : made("td");
    const about = ABOUT[name];
    if (about && number === about[about.length - 1]) {
      const button = made("button", text, { class: "link", type: "button" });
      button.addEventListener("click", () => why(about.map((one) => told.cells[one])));
      cell.append(button);
    } else {
      cell.textContent = text;
    }
    line.append(cell);
  });
  return line;
}

function pager(name, told) {
  const box = made("span");
  const step = told.rows.length;
  const to = (start, text, usable) => {
    const button = made("button", text, { type: "button" });
    button.disabled = !usable;
    button.addEventListener("click", () => { panels.get(name).start = start; load(name); });
    return button;
  };
  if (told.total > step) {
    box.append(to(Math.max(0, told.start - 100), "Previous", told.start > 0), " ",
      to(told.start + step, "Next", told.start + step < told.total));
  }
  return box;
}

function show(name, told) {
  const section = byId(`panel-${name}`);
  const last = told.start + told.rows.length;
  const count = told.total ? `${told.start + 1} to ${last} of ${told.total}` : "none";
  const bar = made("div", undefined, { class: "bar" });
  bar.append(made("h2", told.title, { id: `title-${name}` }), made("p", count, { class: "count" }), pager(name, told));
  const parts = [bar];
  if (told.note) parts.push(made("p", told.note, { class: "note" }));
  if (told.total) {
    const table = made("table", undefined, { "aria-labelledby": `title-${name}` });
    const head = made("tr");
    told.head.forEach((text) => head.append(made("th", text, { scope: "col" })));
    const body = made("tbody");
    told.rows.forEach((one) => body.append(row(name, one)));
    const top = made("thead");
    top.append(head);
    table.append(top, body);
    const scroll = made("div", undefined, { class: "scroll", tabindex: "0", role: "region", "aria-labelledby": `title-${name}` });
    scroll.append(table);
    parts.push(scroll);
  }
  section.replaceChildren(...parts);
  byId(`link-${name}`).textContent = `${told.title} (${told.total})`;
}

async function load(name) {
  const panel = panels.get(name);
  if (panel.loading) { panel.again = true; return; }
  panel.loading = true;
  try {
    const query = new URLSearchParams({ q: byId("filter").value, start: panel.start });
    const answer = await fetch(`panels/${name}?${query}`);
    if (answer.ok) {
      const told = await answer.json();
      panel.start = told.start;
      show(name, told);
    }
  } catch {
    byId("state").textContent = "liqoctl does not answer";
  } finally {
    panel.loading = false;
    if (panel.again) { panel.again = false; load(name); }
  }
}

async function why(about) {
  byId("why-title").textContent = `Why ${about.join("/")}`;
  byId("why-lines").textContent = "Asking the cluster";
  byId("why").showModal();
  const answer = await fetch(`why/${about.map(encodeURIComponent).join("/")}`);
  byId("why-lines").textContent = (await answer.json()).lines.join("\n");
}

function follow() {
  const source = new EventSource("events");
  source.onopen = () => { byId("state").textContent = "Live"; };
  source.onerror = () => { byId("state").textContent = "liqoctl does not answer"; };
  source.onmessage = (event) => {
    for (const [name, version] of Object.entries(JSON.parse(event.data))) {
      const panel = panels.get(name);
      if (panel && panel.version !== version) { panel.version = version; load(name); }
    }
  };
}

async function begin() {
  const { panels: names } = await (await fetch("panels")).json();
  for (const name of names) {
    panels.set(name, { version: -1, start: 0 });
    byId("panels").append(made("section", undefined, { id: `panel-${name}` }));
    const item = made("li");
    item.append(made("a", name, { id: `link-${name}`, href: `#panel-${name}` }));
    byId("links").append(item);
    load(name);
  }
  byId("filter").addEventListener("input", () => {
    for (const [name, panel] of panels) { panel.start = 0; load(name); }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && event.target.tagName !== "INPUT") { event.preventDefault(); byId("filter").focus(); }
  });
  follow();
}
begin();
