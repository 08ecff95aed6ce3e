"use strict";
// Everything that a record says is put on the page as text, never as markup.

const DATA = JSON.parse(document.getElementById("data").textContent);
// A column in which all say the same says nothing.
const telling = (shelf, column) => !shelf.choices[column.name] || shelf.choices[column.name].length > 1;
const SHELVES = new Map(DATA.shelves.map((shelf) => [shelf.kind, shelf]));
const PAGE = 50; // lines of a list
const MOST = 5000; // characters of one text before it is asked for
const HELD = 6; // chunks in memory of each sort
const TITLE = document.title;

// ---------------------------------------------------------------- elements

// A page should open however much a model wrote: of a very long text its beginning, and a button for the rest.
function beginning(text) {
  const shown = document.createTextNode(text.slice(0, MOST) + "… ");
  const more = h("button", { type: "button" }, `Show all ${number(text.length)} characters`);
  more.addEventListener("click", () => { shown.data = text; more.remove(); });
  return [shown, more];
}

function fill(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    if (child instanceof Node) element.append(child);
    else if (String(child).length > MOST && element.namespaceURI.endsWith("xhtml")) element.append(...beginning(String(child)));
    else element.append(String(child));
  }
  return element;
}

function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  return fill(element, children);
}

function s(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  return fill(element, children);
}

const said = (value) => h("div", { class: "said", dir: "auto" }, value);
const code = (value) => h("pre", { tabindex: 0 }, value);

function number(value) {
  if (typeof value !== "number") return value === null || value === undefined ? "–" : String(value);
  return Number.isInteger(value) ? value.toLocaleString("en") : String(Number(value.toPrecision(4)));
}

function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

function unfold(open, title, ...children) {
  return h("details", { open }, h("summary", {}, title), ...children);
}

function fold(title, ...children) {
  return unfold(false, title, ...children);
}

function table(head, rows, numbers) {
  const cell = (tag, value, n) => h(tag, { class: (numbers || []).includes(n) ? "n" : null }, value);
  return h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, head.map((one, n) => cell("th", one, n)))),
    h("tbody", {}, rows.map((row) => (row instanceof Node ? row : h("tr", {}, row.map((one, n) => cell("td", one, n))))))));
}

const cut = (text) => (text.length > 60 ? text.slice(0, 59) + "…" : text);
const badge = (text, kind) => h("span", { class: `badge ${kind || ""}` }, text);
const score = (value) => h("meter", { min: 0, max: 1, value: value === null ? 0 : value, title: number(value) });
function raw(record) {
  const folded = fold("The record as it is");
  folded.addEventListener("toggle", () => folded.append(code(JSON.stringify(record, null, 1))), { once: true });
  return folded;
}

function link(kind, id, text) {
  return SHELVES.has(kind) && SHELVES.get(kind).n ? h("a", { href: `#/${kind}/${encodeURIComponent(id)}` }, text || id) : text || id;
}

// ---------------------------------------------------------------- chunks

const waiting = new Map();
const coming = new Map();
const lists = new Map();
const chunks = new Map();

// A chunk's text stands in a comment of its script, `function(){/*…*/}`: a slice of the source is no copy of it.
window.astra = {
  take(name, holder) {
    const found = waiting.get(name);
    waiting.delete(name);
    if (found) found(JSON.parse(String(holder).slice(13, -3)));
  },
};

// Who asks for a chunk that is on its way waits for the same one.
function read(name) {
  if (!coming.has(name)) coming.set(name, loaded(name).finally(() => coming.delete(name)));
  return coming.get(name);
}

function loaded(name) {
  return new Promise((done, failed) => {
    const script = document.createElement("script");
    const stop = () => failed(new Error(`data/${name}.js cannot be read. The folder data must lie beside this page.`));
    script.src = `data/${encodeURIComponent(name)}.js`;
    script.onload = () => { script.remove(); if (waiting.delete(name)) stop(); };
    script.onerror = () => { script.remove(); waiting.delete(name); stop(); };
    waiting.set(name, done);
    document.head.append(script);
  });
}

function kept(cache, name) {
  const promise = cache.get(name) || read(name);
  promise.catch(() => cache.delete(name));
  cache.delete(name); // the youngest goes last
  cache.set(name, promise);
  while (cache.size > HELD) cache.delete(cache.keys().next().value);
  return promise;
}

const list = (shelf, n) => kept(lists, `${shelf.kind}-list-${n}`);
const chunk = (shelf, n) => kept(chunks, `${shelf.kind}-records-${n}`);

// All lines of a list, chunk by chunk: what has been looked through is let go before it grows old in memory.
async function* parts(shelf) {
  for (let n = 0; n < shelf.lists; n += 1) yield await read(`${shelf.kind}-list-${n}`);
}

async function record(shelf, place) {
  let low = 0, high = shelf.starts.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (shelf.starts[middle] <= place) low = middle; else high = middle - 1;
  }
  const part = await chunk(shelf, low);
  const one = part.records[place - shelf.starts[low]];
  return one.offered ? { ...one, tools: one.offered.map((n) => part.tools[n]) } : one;
}

// As chunks.py spreads ids over chunks.
function spread(text) {
  let n = 7;
  for (let k = 0; k < text.length; k += 1) n = (n * 31 + text.charCodeAt(k)) % 1000003;
  return n;
}

// The place of an id; a graph, of which there are few, may be asked for by its own id instead of its server's.
async function placeOf(shelf, id) {
  const found = (await read(`${shelf.kind}-places-${spread(id) % shelf.places}`)).find(([one]) => one === id);
  if (found || shelf.kind !== "graph") return found ? found[1] : -1;
  let before = 0;
  for await (const part of parts(shelf)) {
    const n = part.findIndex((row) => row[2] === id);
    if (n >= 0) return before + n;
    before += part.length;
  }
  return -1;
}

// ---------------------------------------------------------------- lists

const SORTED = "sort", DOWN = "down", ASKED = "q", PLACE = "page";

function chosen(shelf, query) {
  const words = (query.get(ASKED) || "").toLowerCase().split(/\s+/).filter(Boolean);
  const facets = shelf.columns.flatMap((column, n) =>
    (column.role === "facet" || column.role === "tags") && query.has(column.name) ? [[n + 1, query.get(column.name)]] : []);
  return (row) => facets.every(([n, value]) => (Array.isArray(row[n]) ? row[n].includes(value) : row[n] === value)) &&
    (!words.length || matches(shelf, row, words));
}

function matches(shelf, row, words) {
  let text = row[0];
  shelf.columns.forEach((column, n) => { if (column.role !== "number") text += "\n" + row[n + 1]; });
  text = text.toLowerCase();
  return words.every((word) => text.includes(word));
}

async function selected(shelf, query, told) {
  const start = PAGE * Math.max(0, Number(query.get(PLACE) || 1) - 1);
  const plain = ![...query.keys()].some((key) => key !== PLACE && key !== DOWN);
  if (plain) {
    const found = [];
    for (let place = start; place < Math.min(start + PAGE, shelf.n); place += 1) {
      const part = await list(shelf, Math.floor(place / shelf.rows));
      found.push(part[place % shelf.rows]);
    }
    return { found, n: shelf.n, start };
  }
  const fits = chosen(shelf, query);
  const by = shelf.columns.findIndex((column) => column.name === query.get(SORTED)) + 1;
  const down = query.has(DOWN) ? -1 : 1;
  let first = []; // of those that fit, no more than are shown or stand before
  let n = 0, seen = 0;
  for await (const part of parts(shelf)) {
    const more = part.filter(fits);
    first.push(...more);
    if (by) first.sort((a, b) => compared(a[by], b[by]) * down);
    first = first.slice(0, start + PAGE);
    n += more.length;
    if (!told(seen += part.length)) break; // something else is asked for by now
  }
  return { found: first.slice(start), n, start };
}

function compared(a, b) {
  if (a === null || b === null) return (a === null) - (b === null);
  return typeof a === "number" ? a - b : String(a) < String(b) ? -1 : Number(String(a) > String(b));
}

const address = (kind, query) => `#/list/${kind}${[...query.keys()].length ? "?" + query : ""}`;

function changed(shelf, query, changes) {
  const next = new URLSearchParams(query);
  next.delete(PLACE);
  for (const [key, value] of Object.entries(changes)) { if (value) next.set(key, value); else next.delete(key); }
  return address(shelf.kind, next);
}

function filters(shelf, query, go) {
  const wait = (call) => { let timer; return (event) => { clearTimeout(timer); timer = setTimeout(() => call(event), 200); }; };
  const search = h("input", { type: "search", value: query.get(ASKED) || "", placeholder: "words, or an id",
    oninput: wait((event) => go({ [ASKED]: event.target.value.trim() })) });
  const selects = shelf.columns.filter((column) => shelf.choices[column.name] && telling(shelf, column)).map((column) => {
    const current = query.get(column.name);
    const choices = shelf.choices[column.name];
    const known = current === null || choices.some(([value]) => value === current);
    return h("label", {}, column.label, h("select", { name: column.name,
      onchange: (event) => go({ [column.name]: event.target.value }) },
    h("option", { value: "" }, "any"), !known && h("option", { value: current, selected: true }, current),
    choices.map(([value, n]) => h("option", { value, selected: value === current }, `${cut(String(value))} (${number(n)})`))));
  });
  return h("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
    h("label", { class: "search" }, "Search", search), selects);
}

function line(shelf, row) {
  const first = h("td", { class: "first" }, h("a", { href: `#/${shelf.kind}/${encodeURIComponent(row[0])}` }, row[0]));
  return h("tr", {}, first, shelf.columns.map((column, n) => {
    if (!telling(shelf, column)) return null;
    const value = row[n + 1];
    const text = Array.isArray(value) ? value.join(", ") : column.role === "number" ? number(value) : String(value);
    return h("td", { class: column.role, dir: "auto", "data-label": column.label }, column.role === "text" ? text : cut(text));
  }));
}

function heads(shelf, query, go) {
  return h("thead", {}, h("tr", {}, h("th", { class: "first" }, "Id"), shelf.columns.map((column) => {
    if (!telling(shelf, column)) return null;
    const on = query.get(SORTED) === column.name;
    const down = on && query.has(DOWN);
    const next = !on ? { [SORTED]: column.name, [DOWN]: column.role === "number" ? "1" : "" }
      : { [SORTED]: column.name, [DOWN]: down ? "" : "1" };
    return h("th", { class: column.role,
      "aria-sort": on ? (down ? "descending" : "ascending") : null },
    h("button", { type: "button", title: `Sort by ${column.label}`, onclick: () => go(next) },
      column.label + (on ? (down ? " ↓" : " ↑") : "")));
  })));
}

// The form stays while its list changes, so that who types keeps the cursor.
function showList(shelf, query, current) {
  const body = h("div", {});
  let asked = 0;
  const go = (changes) => {
    const next = changed(shelf, query, changes);
    query = new URLSearchParams(next.split("?")[1] || "");
    history.replaceState(null, "", next);
    draw();
  };
  async function draw() {
    const mine = (asked += 1);
    const told = (n) => {
      if (mine !== asked || !current()) return false;
      if (n < shelf.n) status.textContent = `Reading ${number(n)} of ${number(shelf.n)} …`;
      return true;
    };
    try {
      const { found, n, start } = await selected(shelf, query, told);
      if (mine !== asked || !current()) return;
      const last = Math.max(1, Math.ceil(n / PAGE)), page = start / PAGE + 1;
      status.textContent = n ? `${number(start + 1)} to ${number(Math.min(start + PAGE, n))} of ${number(n)}` : "Nothing fits.";
      const to = (place, text) => h("button", { type: "button", disabled: place < 1 || place > last || place === page,
        onclick: () => { go({ [PLACE]: String(place) }); scrollTo(0, 0); } }, text);
      body.replaceChildren(h("div", { class: "scroll" }, h("table", { class: "list" }, heads(shelf, query, go),
        h("tbody", {}, found.map((row) => line(shelf, row))))),
      h("div", { class: "pager" }, to(1, "First"), to(page - 1, "Back"), `Page ${number(page)} of ${number(last)}`,
        to(page + 1, "Next"), to(last, "Last")));
    } catch (error) { if (current()) body.replaceChildren(failure(error)); }
  }
  const status = h("p", { class: "note", role: "status" }, "Reading …");
  view.replaceChildren(h("h2", {}, shelf.title), filters(shelf, query, go), status, body);
  draw();
}

const failure = (error) => h("p", { class: "error", role: "alert" }, error.message);

// ---------------------------------------------------------------- pictures of graphs

const HIGH = 26;

function bent(a, b) {
  const y1 = a.y + HIGH / 2, y2 = b.y + HIGH / 2;
  if (a.x === b.x) return `M${a.x + a.width} ${y1}C${a.x + a.width + 40} ${y1} ${b.x + b.width + 40} ${y2} ${b.x + b.width} ${y2}`;
  const [x1, x2] = b.x > a.x ? [a.x + a.width, b.x] : [a.x, b.x + b.width];
  const forward = b.x > a.x, far = Math.abs(x2 - x1);
  const bend = (forward ? 1 : -1) * Math.max(40, far / 2);
  const beside = forward ? 0 : 5; // of what leads the other way
  const sag = y1 === y2 && far > 150 ? Math.min(60, far / 6) : 0; // below what lies between
  return `M${x1} ${y1 + beside}C${x1 + bend} ${y1 + beside + sag} ${x2 - bend} ${y2 + beside + sag} ${x2} ${y2 + beside}`;
}

// Boxes with places, and edges [from label, to label, class, what it says]; chosen(n) is told which was pressed.
function net(boxes, edges, pressed) {
  const at = new Map(boxes.map((box) => [box.label, box]));
  const width = Math.max(...boxes.map((box) => box.x + box.width)) + 60;
  const height = Math.max(...boxes.map((box) => box.y)) + HIGH + 40;
  const head = s("marker", { id: "head", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" },
    s("path", { d: "M0 0L8 4L0 8z", style: "fill:var(--soft);stroke:none" }));
  const drawn = edges.map(([from, to, kind, what], n) => s("g", { class: `edge ${kind}`, tabindex: pressed ? 0 : -1,
    onclick: () => pressed && pressed(n), onkeydown: (event) => { if (event.key === "Enter" && pressed) pressed(n); } },
  s("title", {}, what), s("path", { d: bent(at.get(from), at.get(to)), "marker-end": "url(#head)" })));
  const shapes = boxes.map((box) => s("g", { class: box.near === false ? "far" : "" },
    s("rect", { x: box.x, y: box.y, width: box.width, height: HIGH, rx: 5 }),
    s("text", { x: box.x + 8, y: box.y + 17 }, box.label)));
  return h("div", { class: "scroll" },
    s("svg", { class: "net", width, height, viewBox: `0 0 ${width} ${height}`, role: "img" }, s("defs", {}, head), drawn, shapes));
}

// ---------------------------------------------------------------- records

function tools(some, n_first) {
  return some.map((tool, n) => unfold(Boolean(tool.code && tool.serves.length), [h("b", {}, tool.name), n_first !== undefined && n >= n_first ? " (comes later)" : ""],
    said(tool.description), tool.notes && h("p", { class: "finding" }, tool.notes.join(", ")),
    tool.code && [h("p", { class: "note" }, tool.serves.length ? `Serves step ${tool.serves.join(", ")}` : "Serves no step"), code(tool.code)],
    fold("Parameters", code(JSON.stringify(tool.parameters, null, 1))), tool.returns && fold("Result", code(JSON.stringify(tool.returns, null, 1)))));
}

function verdicts(found, missing) {
  return h("div", { class: "scores" }, Object.entries(found).map(([name, one]) => [
    h("b", {}, name), score(one.score), h("span", { class: "n" }, one.score === null ? "none" : number(one.score)),
    h("span", { class: "why" }, one.reason)]),
  Object.entries(missing || {}).map(([name, why]) => [h("b", {}, name), h("span", {}, "does not apply"), h("span", {}), h("span", { class: "why" }, why)]));
}

// JSON on several lines; as it stands where a browser would change it (long numbers, keys that come twice).
function pretty(text) {
  try {
    const bare = (some) => some.replace(/\s+/g, "");
    const found = JSON.parse(text);
    return bare(JSON.stringify(found)) === bare(text) ? JSON.stringify(found, null, 1) : text;
  } catch { return text; }
}

function isJson(text) {
  try { JSON.parse(text); return true; } catch { return false; }
}

function call(one) {
  const args = one.function.arguments;
  return h("div", { class: "call" }, "→ ", h("b", {}, one.function.name), !isJson(args) && [" ", badge("arguments are not JSON", "bad")],
    code(pretty(args)));
}

function turn(message, n, findings, late) {
  const bad = message.fault || message.is_error;
  const head = h("div", { class: "head" }, `${n}`, h("b", {}, message.role), message.name,
    message.executed_by && badge(`by ${message.executed_by}`), message.fault && badge(`fault: ${message.fault}`, "bad"),
    message.is_error && badge("error", "bad"), message.repairs && badge(`mended: ${message.repairs.join(", ")}`, "warm"),
    late && badge(`brings ${late.tools.join(", ")}`, "warm"));
  return h("article", { class: `turn ${message.role} ${bad ? "fault" : ""}`, id: `turn-${n}` }, head,
    message.reasoning && fold("Reasoning", said(message.reasoning)),
    message.content && (message.role === "tool" && isJson(message.content) ? code(pretty(message.content)) : said(message.content)),
    (message.tool_calls || []).map(call),
    findings.map((one) => h("p", { class: "finding" }, `${one.kind}: ${one.detail}`)));
}

function conversation(messages, evidence, late) {
  return messages.map((message, n) => turn(message, n, (evidence || []).filter((one) => one.message === n),
    (late || []).find((one) => one.message === n)));
}

const value = (answer) => `${JSON.stringify(answer.value)}${answer.unit ? " " + answer.unit : ""} (${answer.kind})`;
const ids = (kind, some) => (some || []).map((id, n) => [n ? ", " : "", link(kind, id)]);

const VIEWS = {
  graph(one) {
    const name = (edge) => (edge.target_server_id ? (one.boxes.find((box) => box.label.endsWith(`/${edge.target}`)) || {}).label : edge.target);
    const told = (edge) => edge.via.map((via) => `${via.output} → ${via.parameter} (` +
      Object.entries(via.evidence).map(([kind, amount]) => `${kind} ${number(amount)}`).join(", ") + ")").join("; ");
    const kind = (edge) => (edge.via.length && edge.votes_for ? "both" : edge.via.length ? "schema" : "model");
    const lines = one.edges.map((edge) => h("tr", {}, h("td", {}, edge.source), h("td", {}, name(edge) || edge.target),
      h("td", { class: "n" }, number(edge.weight)), h("td", { class: "n" }, `${edge.votes_for} of ${edge.votes}`), h("td", {}, told(edge) || "a model's proposal only")));
    const mark = (n) => {
      view.querySelectorAll(".on").forEach((element) => element.classList.remove("on"));
      lines[n].classList.add("on");
      view.querySelectorAll(".net .edge")[n].classList.add("on");
      lines[n].scrollIntoView({ block: "nearest" });
    };
    const source = one.source;
    return [facts([["Server", one.title], ["Graph", one.graph], ["Domain", one.domain], ["Source", `${source.format}, ${source.uri}`],
      ["Revision", source.revision], ["Licence", source.licence]]), said(one.description),
    one.boxes ? [h("h3", {}, `${one.edges.length} edges`),
      h("p", { class: "note" }, "Blue: a schema and a model say so; grey: a schema; dashed: a model only. Press an edge to see its evidence."),
      net(one.boxes, one.edges.map((edge) => [edge.source, name(edge), kind(edge), `${edge.source} → ${edge.target}: ${told(edge)}`]), mark),
      table(["From", "To", "Weight", "Votes", "What speaks for it"], lines, [2, 3])] : h("p", { class: "note" }, "This server has no graph: no tool feeds another."),
    h("h3", {}, `${one.tools.length} tools`), tools(one.tools)];
  },
  chain(one) {
    return [facts([["Servers", ids("graph", one.server_ids)], ["Support", number(one.support)]]),
      h("h3", {}, "Steps"), table(["", "Tool", "Argument", "Comes from"], one.tools.flatMap((tool, n) => {
        const needs = one.bindings.filter((binding) => binding.step === n);
        const from = (binding) => (binding.origin === "user" ? "the user" : `${one.tools[binding.from_step]} (${binding.from_step}): ${binding.output}`);
        return (needs.length ? needs : [null]).map((binding, k) => [k ? "" : n, k ? "" : h("b", {}, tool), binding ? binding.parameter : "–", binding ? from(binding) : "needs none"]);
      })), h("h3", {}, "Checks"), facts(Object.entries(one.checks))];
  },
  task(one) {
    return [said(one.question), facts([["Kind", one.kind], ["Chain", one.chain_id && link("chain", one.chain_id)], ["Servers", ids("graph", one.server_ids)],
      ["Tools", one.target_tools.join(" → ")], ["Missing", (one.missing || []).join(", ")], ["Origin", one.origin], ["Rewritten", one.augmentation],
      ["Made from", one.parent && link("task", one.parent)], ["Persona", one.persona], ["Voice", one.voice],
      ["Conversations", h("a", { href: `#/list/trajectory?q=${encodeURIComponent(one.id)}` }, "those of this task")]]),
    one.turns && [h("h3", {}, "Said later"), one.turns.map((later) => h("article", { class: "turn user" }, said(later.says),
      h("div", { class: "head" }, later.brings && badge(`brings ${later.brings.join(", ")}`, "warm"), later.gives && badge(`gives ${later.gives}`, "warm"))))],
    one.values && [h("h3", {}, "Values it states"), table(["Tool", "Parameter", "Value"], one.values.map((stated) => [stated.tool, stated.parameter, stated.value]))],
    h("h3", {}, "Judged"), verdicts(one.quality)];
  },
  trajectory(one) {
    const card = one.card;
    return [facts([["Task", link("task", one.task_id)], ["Kind", one.kind], ["Attempt", one.attempt || 0], ["Ended", one.stop], ["Model", one.model],
      ["Servers", ids("graph", one.server_ids)], ["Never offered", (one.withheld || []).join(", ")],
      ["Used", `${number(one.usage.calls)} calls, ${number(one.usage.prompt_tokens)} + ${number(one.usage.completion_tokens)} tokens`]]),
    card ? [h("h3", {}, `Score ${number(card.overall)}`), verdicts(card.dimensions, card.not_applicable),
      card.evidence.length > 0 && [h("h3", {}, "What rules found"), card.evidence.map((found) => h("p", { class: "finding" },
        h("button", { type: "button", onclick: () => document.getElementById(`turn-${found.message}`).scrollIntoView() }, `message ${found.message}`),
        ` ${found.kind}: ${found.detail}`))]] : h("p", { class: "note" }, "No scorecard."),
    fold(`${(one.tools || []).length} tools offered`, tools(one.tools || [], one.n_first)),
    h("h3", {}, "Conversation"), conversation(one.messages, card && card.evidence, one.late)];
  },
  arena(one) {
    const level = new Map();
    one.steps.forEach((step) => level.set(step.id, 1 + Math.max(-1, ...(step.depends_on || []).map((id) => level.get(id)))));
    const counts = new Map();
    const boxes = one.steps.map((step) => {
      const column = level.get(step.id), row = counts.get(column) || 0;
      counts.set(column, row + 1);
      const label = `${step.id}: ${step.relation || (step.needs_tool ? "tool" : "language only")}`;
      return { x: 10 + column * 250, y: 10 + row * 46, width: Math.min(200, 18 + 7 * label.length), label, near: step.needs_tool };
    });
    const label = new Map(one.steps.map((step, n) => [step.id, boxes[n].label]));
    const edges = one.steps.flatMap((step) => (step.depends_on || []).map((id) => [label.get(id), label.get(step.id), "schema", `${id} → ${step.id}`]));
    const proof = one.certificate;
    return [said(one.question), facts([["Answer", value(one.answer)], ["Shape", one.shape], ["Split", one.split], ["Domain", one.domain],
      ["Made from", one.decomposition_id]]),
    one.variant && [h("h3", {}, `Cannot be done: ${one.variant.kind}`), facts([["What is not there", one.variant.names.join(", ")],
      ["Made from", link("arena", one.variant.base)], ["Question before", one.variant.question], ["First step that cannot be done", one.variant.step]])],
    h("h3", {}, "Decomposition"), net(boxes, edges),
    table(["", "Sub-question", "Answer", "After", "Needs a tool"], one.steps.map((step) => [step.id, step.question, value(step.answer), (step.depends_on || []).join(", "), step.needs_tool ? "yes" : "no"])),
    h("h3", {}, "Golden calls"), table(["Step", "Call", "Must return"], (one.probes || []).map((probe) => [probe.step, h("code", {}, `${probe.tool}(${JSON.stringify(probe.arguments)})`), value(probe.expected)])),
    h("h3", {}, "Tools"), tools(one.code),
    h("h3", {}, "Certificate"), h("p", {}, Object.entries(proof.checks).map(([name, passed]) => [badge(`${passed ? "✓" : "✗"} ${name}`, passed ? "" : "bad"), " "])),
    table(["Agent", "Paid"], Object.entries(proof.payments).map(([name, paid]) => [name, number(paid)]), [1]),
    facts([["Sandbox", proof.backend], ["Artifact", proof.artifact], ["Seal", proof.seal]])];
  },
  rollout(one) {
    return [facts([["Arena", link("arena", one.arena_id)], ["Update", one.update], ["Sample", one.sample], ["Reward", number(one.reward)], ["Recall", number(one.recall)],
      ["Precision", number(one.precision)], ["Solved", `${one.solved} of ${one.n_required}`], ["Calls", one.n_calls], ["Answer", one.answer_correct ? "right" : "not right"], ["Ended", one.stop]]),
    h("h3", {}, "Conversation"), conversation(one.messages)];
  },
  sample(one) {
    return [facts([["Model", one.model], ["Benchmark", one.benchmark], ["Case", link(one.case.startsWith("environment-") ? "arena" : "", one.case)], ["Mode", one.mode], ["Trial", one.trial || 0],
      ...Object.entries(one.scores || {}).map(([name, amount]) => [name, number(amount)])]),
    one.error && h("p", { class: "error" }, "Failure of the machinery: ", one.error), h("h3", {}, "Conversation"), conversation(one.messages)];
  },
  reject(one) {
    const [kind, rest] = [one.id.split("-")[0], one.id.split(":")[0]];
    const place = { environment: "arena", server: "graph", demonstration: "" }[kind] ?? kind;
    return [facts([["Record", VIEWS[place] ? link(place, rest, one.id) : one.id], ["Stage", one.stage], ["Reason", badge(one.reason, "bad")]]), said(one.detail)];
  },
};

async function showRecord(shelf, id, current) {
  view.replaceChildren(h("p", { class: "note", role: "status" }, "Reading …"));
  try {
    const place = await placeOf(shelf, id);
    if (!current()) return;
    if (place < 0) throw new Error(`There is no ${shelf.kind} ${id} in this report.`);
    const one = await record(shelf, place);
    const near = await Promise.all([place - 1, place + 1].map(async (n) => (n < 0 || n >= shelf.n ? null
      : (await list(shelf, Math.floor(n / shelf.rows)))[n % shelf.rows][0])));
    if (!current()) return;
    const step = (to, text) => (to === null ? null : link(shelf.kind, to, text));
    view.replaceChildren(fill(document.createDocumentFragment(), [
      h("p", { class: "pager" }, h("a", { href: `#/list/${shelf.kind}` }, shelf.title), `${number(place + 1)} of ${number(shelf.n)}`, step(near[0], "Back"), step(near[1], "Next")),
      h("h2", {}, id), VIEWS[shelf.kind](one), raw(one)]));
  } catch (error) { if (current()) view.replaceChildren(failure(error)); }
}

// ---------------------------------------------------------------- charts

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// The library is a megabyte: it is read when the first picture comes into view, and never for lists and records.
function library() {
  if (!window.vegaEmbed) document.head.append(h("script", {}, [document.createTextNode(document.getElementById("library").textContent)]));
  return window.vegaEmbed;
}

function drawChart(element) {
  const ink = style("--ink"), soft = style("--soft"), faint = style("--line");
  const axis = { labelColor: soft, titleColor: soft, gridColor: faint, domainColor: faint, tickColor: faint, labelLimit: 170 };
  const config = { background: "transparent", view: { stroke: null }, axis, text: { color: ink, fontSize: 12 }, rule: { color: ink },
    legend: { labelColor: soft, titleColor: soft }, font: getComputedStyle(document.body).fontFamily, autosize: { type: "fit-x", contains: "padding" } };
  const spec = { ...DATA.charts[Number(element.dataset.chart)], config };
  library()(element, spec, { mode: "vega-lite", renderer: "svg", actions: false, ast: true, logLevel: 1 })
    .catch((error) => element.replaceChildren(failure(error)));
}

function charts() {
  const seen = new IntersectionObserver((found) => found.forEach((one) => {
    if (one.isIntersecting) { seen.unobserve(one.target); one.target.dataset.drawn = "yes"; drawChart(one.target); }
  }), { rootMargin: "300px" });
  document.querySelectorAll(".chart").forEach((element) => seen.observe(element));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
    document.querySelectorAll(".chart[data-drawn]").forEach(drawChart));
}

// ---------------------------------------------------------------- addresses

const view = document.getElementById("view");
const overview = document.getElementById("overview");
let turnOf = 0;

function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

function show() {
  if (location.hash && !location.hash.startsWith("#/")) return; // a place within the page
  const mine = (turnOf += 1);
  const current = () => mine === turnOf;
  const [path, query] = location.hash.slice(2).split("?");
  const [first, ...rest] = path.split("/");
  const name = first === "list" ? rest[0] : first;
  const shelf = SHELVES.get(name);
  document.querySelectorAll("[data-nav]").forEach((one) => {
    if (one.dataset.nav === (shelf ? name : "")) one.setAttribute("aria-current", "page"); else one.removeAttribute("aria-current");
  });
  const section = !shelf && name ? document.getElementById(name) : null;
  overview.hidden = !(section || !name);
  view.hidden = !overview.hidden;
  if (view.hidden) view.replaceChildren();
  if (section) section.scrollIntoView(); else scrollTo(0, 0);
  if (!overview.hidden) document.title = TITLE;
  else if (!shelf) { document.title = TITLE; view.replaceChildren(failure(new Error(`This report has no page ${decoded(path)}.`))); }
  else if (first === "list") { document.title = `${shelf.title} · ${TITLE}`; showList(shelf, new URLSearchParams(query || ""), current); }
  else { const id = decoded(rest.join("/")); document.title = `${id} · ${TITLE}`; showRecord(shelf, id, current); }
}

addEventListener("hashchange", show);
show();
requestAnimationFrame(() => setTimeout(charts)); // what is looked at first does not wait for pictures
