"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const FAINT = 0.02; // smaller weights are not drawn
const ROW = 27, FONT = 15, PAD = 8;
const state = { kind: "encoder", layer: 0, heads: new Set(), pinned: null, pointed: null };
let tabStop = "left 0"; // the one word that the Tab key reaches

const by = (id) => document.getElementById(id);
const percent = (weight) => `${Math.round(100 * weight)} %`;
const shown = () => data.kinds[state.kind];
const headsOf = (kind) => kind.entropy[0].length; // may differ in the decoder
const headsShown = () =>
  [...state.heads].filter((head) => head < headsOf(shown())).sort((a, b) => a - b);
const active = () => state.pointed ?? state.pinned;

function make(name, attributes = {}, ...children) {
  const svg = ["svg", "g", "rect", "text", "line", "title"].includes(name);
  const made = svg
    ? document.createElementNS("http://www.w3.org/2000/svg", name)
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Each weight is one byte; the array [layers, heads, queries, keys] is deflated.
async function unpack(kind) {
  const packed = Uint8Array.from(atob(kind.weights), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const [Q, K] = [kind.queries.length, kind.keys.length];
  kind.at = (layer, head, query, key) =>
    bytes[((layer * headsOf(kind) + head) * Q + query) * K + key] / 255;
}

function choices() {
  for (const [name, kind] of Object.entries(data.kinds)) {
    const radio = make("input", { type: "radio", name: "kind", value: name });
    radio.checked = name === state.kind;
    radio.onchange = () => { Object.assign(state, { kind: name, pinned: null }); draw(); };
    by("kinds").append(make("label", {}, radio, kind.name));
  }
  for (let layer = 0; layer < data.layers; layer++) {
    const radio = make("input", { type: "radio", name: "layer", value: layer });
    radio.checked = layer === state.layer;
    radio.onchange = () => { state.layer = layer; draw(); };
    by("layers").append(make("label", {}, radio, `${layer + 1}`));
  }
  for (let head = 0; head < data.heads; head++) {
    const box = make("input", { type: "checkbox", name: "head", value: head });
    box.onchange = () => { state.heads[box.checked ? "add" : "delete"](head); draw(); };
    const swatch = make("span", { class: "swatch" });
    swatch.style.background = data.colours[head];
    by("all").before(make("label", {}, box, swatch, `${head + 1}`));
  }
  by("all").onclick = () => choose(data.colours.keys());
  by("none").onclick = () => choose([]);
  by("save").onclick = save;
  by("choices").onsubmit = (event) => event.preventDefault();
}

function choose(heads) {
  state.heads = new Set(heads);
  draw();
}

// The encoder and the decoder may have different numbers of layers.
function fitLayers() {
  const count = data.kinds[state.kind].entropy.length;
  state.layer = Math.min(state.layer, count - 1);
  for (const radio of document.getElementsByName("layer")) {
    radio.parentElement.hidden = radio.value >= count;
    radio.checked = +radio.value === state.layer;
  }
}

function draw() {
  state.pointed = null;
  fitLayers();
  for (const box of document.getElementsByName("head")) {
    box.parentElement.hidden = box.value >= headsOf(shown());
    box.checked = state.heads.has(+box.value);
  }
  drawLines();
  drawThumbnails();
  drawMap();
  describe();
}

function drawLines() {
  const { queries, keys, name } = shown();
  const context = make("canvas").getContext("2d");
  context.font = `${FONT}px system-ui, sans-serif`;
  const width = (words) => Math.max(...words.map((w) => context.measureText(w).width)) + 2 * PAD;
  const [left, right] = [width(queries), width(keys)];
  const gap = Math.max(90, Math.min(420, by("lines").clientWidth - left - right - 4));
  const columns = {
    left: { words: queries, from: 2, width: left, edge: 2 + left },
    right: { words: keys, from: 2 + left + gap, width: right, edge: 2 + left + gap },
  };
  const [w, h] = [left + gap + right + 4, ROW * Math.max(queries.length, keys.length) + 4];
  const svg = make("svg", {
    width: w, height: h, viewBox: `0 0 ${w} ${h}`, role: "group", fill: "currentColor",
    "font-family": "system-ui, sans-serif", "font-size": FONT,
    "aria-label": `${name}, layer ${state.layer + 1}`,
  });
  svg.append(make("g", { id: "strokes" }));
  for (const [side, column] of Object.entries(columns)) {
    column.words.forEach((text, place) => svg.append(word(side, place, text, column)));
  }
  const focused = by("lines").contains(document.activeElement);
  by("lines").replaceChildren(svg);
  if (!by(tabStop)) tabStop = "left 0";
  by(tabStop).setAttribute("tabindex", 0);
  if (focused) by(tabStop).focus();
  drawStrokes();
}

function word(side, place, text, column) {
  const y = 2 + ROW * place;
  const role = side === "left" ? "attends" : "is attended to";
  const group = make("g", {
    id: `${side} ${place}`, class: "word", role: "button", tabindex: -1,
    "aria-pressed": false, "aria-label": `${text}, word ${place + 1}, ${role}`,
  });
  group.append(
    make("rect", { x: column.from, y, width: column.width, height: ROW, rx: 4, "fill-opacity": 0 }),
    make("g", { class: "marks" }),
    make("text", {
      x: side === "left" ? column.edge - PAD : column.edge + PAD, y: y + ROW / 2 + FONT / 3,
      "text-anchor": side === "left" ? "end" : "start",
    }, text),
  );
  const here = { side, place };
  group.onpointerenter = () => point(here);
  group.onpointerleave = () => point(null);
  group.onfocus = () => { moveTabStop(group.id); point(here); };
  group.onblur = () => point(null);
  group.onclick = () => pin(here);
  group.onkeydown = (event) => key(event, here);
  return group;
}

function moveTabStop(id) {
  by(tabStop)?.setAttribute("tabindex", -1);
  tabStop = id;
  by(id).setAttribute("tabindex", 0);
}

function same(a, b) {
  return a !== null && b !== null && a.side === b.side && a.place === b.place;
}

function point(here) {
  if (state.pointed === here) return;
  state.pointed = here;
  drawStrokes();
  describe();
}

function pin(here) {
  state.pinned = same(state.pinned, here) ? null : here;
  drawStrokes();
  drawMap();
  describe();
}

function key(event, { side, place }) {
  const other = side === "left" ? "right" : "left";
  const to = {
    ArrowUp: `${side} ${place - 1}`, ArrowDown: `${side} ${place + 1}`,
    ArrowLeft: `${other} ${place}`, ArrowRight: `${other} ${place}`,
  }[event.key];
  if (to) by(to)?.focus();
  else if (event.key === "Enter" || event.key === " ") pin({ side, place });
  else if (event.key === "Escape") { state.pointed = null; pin(null); }
  else return;
  event.preventDefault();
}

// The weights of one head between the active word and each word of the other side.
function weightsOf({ side, place }, head) {
  const { queries, keys, at } = shown();
  return side === "left"
    ? keys.map((_, k) => at(state.layer, head, place, k))
    : queries.map((_, q) => at(state.layer, head, q, place));
}

function drawStrokes() {
  const { queries, keys, at } = shown();
  const [from, to] = ["left 0", "right 0"].map((id) => by(id).querySelector("rect"));
  const x1 = +from.getAttribute("x") + +from.getAttribute("width"), x2 = +to.getAttribute("x");
  const middle = (place) => 2 + ROW * (place + 0.5);
  const chosen = active(), heads = headsShown(), strokes = [];
  for (const head of heads) {
    queries.forEach((_, q) => keys.forEach((_, k) => {
      const weight = at(state.layer, head, q, k);
      if (weight < FAINT) return;
      if (chosen && (chosen.side === "left" ? q : k) !== chosen.place) return;
      strokes.push(make("line", {
        x1, y1: middle(q), x2, y2: middle(k), stroke: data.colours[head],
        "stroke-width": 2, "stroke-opacity": weight,
      }));
    }));
  }
  by("strokes").replaceChildren(...strokes);
  for (const group of by("lines").querySelectorAll(".word")) {
    const [side, place] = [group.id.split(" ")[0], +group.id.split(" ")[1]];
    const rect = group.querySelector("rect"), mine = same(chosen, { side, place });
    rect.setAttribute("fill-opacity", mine ? 0.18 : 0);
    group.setAttribute("aria-pressed", same(state.pinned, { side, place }));
    // Like the paper's figures: behind each word of the other side, one mark per head.
    const step = rect.getAttribute("width") / heads.length;
    group.querySelector(".marks").replaceChildren(
      ...(!chosen || chosen.side === side ? [] : heads).map((head, i) => make("rect", {
        x: +rect.getAttribute("x") + i * step, y: rect.getAttribute("y"), width: step, height: ROW,
        fill: data.colours[head], "fill-opacity": 0.7 * weightsOf(chosen, head)[place],
      })),
    );
  }
}

function describe() {
  const chosen = active(), { queries, keys } = shown();
  if (!chosen || !headsShown().length) {
    by("said").textContent = headsShown().length ? "" : "No head is chosen.";
    return;
  }
  const left = chosen.side === "left";
  const others = left ? keys : queries;
  const parts = headsShown().map((head) => {
    const weights = weightsOf(chosen, head);
    const most = weights.indexOf(Math.max(...weights));
    return `head ${head + 1} ${others[most]} ${percent(weights[most])}`;
  });
  const text = (left ? queries : keys)[chosen.place];
  by("said").textContent =
    `“${text}” ${left ? "attends most to" : "is attended to most by"}: ${parts.join(", ")}`;
}

function drawThumbnails() {
  const { queries, keys, at, entropy, distance } = shown();
  const ink = [1, 3, 5].map((i) => (colour) => parseInt(colour.slice(i, i + 2), 16));
  const colours = data.colours.slice(0, headsOf(shown()));
  by("thumbnails").replaceChildren(...colours.map((colour, head) => {
    const canvas = make("canvas", { width: keys.length, height: queries.length });
    const context = canvas.getContext("2d");
    const picture = context.createImageData(keys.length, queries.length);
    for (let i = 0; i < keys.length * queries.length; i++) {
      const weight = at(state.layer, head, Math.floor(i / keys.length), i % keys.length);
      picture.data.set([...ink.map((part) => part(colour)), 255 * weight], 4 * i);
    }
    context.putImageData(picture, 0, 0);
    const alone = headsShown().length === 1 && state.heads.has(head);
    const facts = [
      `head ${head + 1}`,
      `entropy ${entropy[state.layer][head].toFixed(2)} bits`,
      `distance ${distance[state.layer][head].toFixed(1)}`,
    ];
    const button = make("button", { type: "button", "aria-pressed": alone }, canvas);
    facts.forEach((fact, i) => button.append(...(i ? [make("br")] : []), `${fact} `));
    button.onclick = () => {
      choose(alone ? data.colours.keys() : [head]);
      by("thumbnails").children[head].firstChild.focus();
    };
    return make("li", {}, button);
  }));
}

function drawMap() {
  const { queries, keys, at, name } = shown();
  const heads = headsShown();
  const pinned = (side, place) => (same(state.pinned, { side, place }) ? "active" : "");
  const body = queries.map((text, q) => make("tr", { class: pinned("left", q) },
    make("th", { scope: "row" }, text),
    ...keys.map((other, k) => {
      const sum = heads.reduce((total, head) => total + at(state.layer, head, q, k), 0);
      const weight = heads.length ? sum / heads.length : 0;
      const cell = make("td", { title: `${text} → ${other}: ${percent(weight)}` },
        make("span", { class: "unseen" }, percent(weight)));
      cell.style.background = `rgb(var(--accent-rgb) / ${weight})`;
      return cell;
    })));
  const head = make("tr", {}, make("td"), ...keys.map((text, k) =>
    make("th", { scope: "col", class: pinned("right", k) }, text)));
  by("map").replaceChildren(make("table", {},
    make("caption", { class: "unseen" }, `${name}, layer ${state.layer + 1}`),
    make("thead", {}, head), make("tbody", {}, ...body)));
}

function drawSearch() {
  if (!data.search) return;
  by("search").hidden = false;
  by("why").textContent = data.search.why;
  by("ending").textContent = data.search.ending;
  const titles = ["fate", "log p", "score", "text so far"];
  by("steps").replaceChildren(...data.search.steps.map((step, number) => make("div",
    { tabindex: 0, role: "region", "aria-label": `step ${number + 1}` },
    make("table", {},
      make("caption", {}, `step ${number + 1}`),
      make("thead", {}, make("tr", {}, ...titles.map((t) => make("th", { scope: "col" }, t)))),
      make("tbody", {}, ...step.map((one) => make("tr", { class: one.wins ? "wins" : "" },
        make("td", {}, one.fate), make("td", {}, one.log_p.toFixed(3)),
        make("td", {}, one.score.toFixed(3)),
        make("td", {}, `${one.text}${one.wins ? " (beginning of the winner)" : ""}`))))))));
}

function save() {
  const svg = by("lines").firstChild.cloneNode(true);
  svg.setAttribute("color", getComputedStyle(document.body).color);
  for (const group of svg.querySelectorAll(".word")) {
    for (const name of ["id", "role", "tabindex", "aria-pressed", "class"]) group.removeAttribute(name);
  }
  const text = new XMLSerializer().serializeToString(svg);
  const link = make("a", {
    href: URL.createObjectURL(new Blob([text], { type: "image/svg+xml" })),
    download: `${state.kind}-layer-${state.layer + 1}.svg`,
  });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

async function start() {
  by("sentence").textContent = data.sentence;
  by("translation").textContent = data.translation;
  await Promise.all(Object.values(data.kinds).map(unpack));
  Object.assign(state, data.first, { heads: new Set(data.first.heads) });
  choices();
  drawSearch();
  draw();
  let width = by("lines").clientWidth;
  new ResizeObserver(() => {
    if (width === by("lines").clientWidth) return; // only the height changed, with the text of #said
    width = by("lines").clientWidth;
    drawLines();
  }).observe(by("lines"));
}

start();
