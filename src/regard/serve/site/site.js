"use strict";
const PAUSE = 300; // milliseconds without typing before the text is translated
const OTHERS = 3; // alternative translations to request

const by = (id) => document.getElementById(id);
const state = {
  texts: TEXTS.en, languages: [], most: 0, // the server's languages, and its limit of characters
  asking: null, timer: 0, sentences: [], partial: new Map(), after: "", // the current translation
  looking: null, looked: null, // the request for the page of attention, and the sentence it shows
};

function make(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Texts of the page ------------------------------------------------------------------------------

function speak(language) {
  state.texts = TEXTS[language];
  document.documentElement.lang = language;
  by("interface").value = language;
  for (const one of document.querySelectorAll("[data-text]")) one.textContent = state.texts[one.dataset.text];
  for (const one of document.querySelectorAll("[data-label]")) one.ariaLabel = state.texts[one.dataset.label];
  for (const one of document.querySelectorAll("[data-title]")) one.title = state.texts[one.dataset.title];
  names();
  count();
  flaws();
}

function names() {
  const shown = new Intl.DisplayNames([document.documentElement.lang], { type: "language" });
  for (const option of document.querySelectorAll("#source option, #target option")) {
    try {
      option.textContent = shown.of(option.value);
    } catch { // a code that the browser does not know
      option.textContent = option.value;
    }
  }
}

function count() {
  by("count").textContent = state.texts.count(by("text").value.length, state.most);
}

// Language pairs ---------------------------------------------------------------------------------

const targets = (source) => state.languages.find(({ code }) => code === source)?.targets ?? [];

function choose(source, target) {
  by("source").value = source;
  by("target").replaceChildren(...targets(source).map((code) => make("option", { value: code })));
  if (targets(source).includes(target)) by("target").value = target;
  by("swap").disabled = !targets(by("target").value).includes(source);
  for (const id of ["text", "echo", "which"]) by(id).lang = source;
  by("result").lang = by("target").value;
  names();
}

function swap() {
  const [source, target] = [by("source").value, by("target").value];
  const text = by("result").ariaBusy === "true" ? "" : by("result").textContent;
  choose(target, source);
  if (text) by("text").value = text;
  count();
  ask();
}

// Requests ---------------------------------------------------------------------------------------

function later(milliseconds = PAUSE) {
  clearTimeout(state.timer);
  state.timer = setTimeout(ask, milliseconds);
}

// A header can hold bytes only: the server reads them as UTF-8.
const bytes = (text) => String.fromCharCode(...new TextEncoder().encode(text));
const headers = () => ({
  "Content-Type": "application/json",
  ...(by("key").value && { Authorization: `Bearer ${bytes(by("key").value)}` }),
});
const question = (text) => ({ text, source: by("source").value, target: by("target").value });

async function ask() {
  clearTimeout(state.timer);
  state.asking?.abort();
  state.looking?.abort();
  const asking = state.asking = new AbortController();
  Object.assign(state, { sentences: [], partial: new Map(), after: "", looked: null });
  say("problem", "");
  say("said", "");
  by("echo").replaceChildren();
  const text = by("text").value;
  if (!text.trim()) return done();
  by("result").ariaBusy = "true";
  try {
    const body = { ...question(text), n_best: 1 + OTHERS, stream: true, partial: true, alignment: true };
    const answer = await fetch("v1/translate", {
      method: "POST", headers: headers(), body: JSON.stringify(body), signal: asking.signal,
    });
    if (!answer.ok) return await refused(answer, asking);
    let last;
    for await (const { kind, content } of events(answer.body)) {
      receive(last = kind, content);
      if (last === "done" || last === "error") break;
    }
    if (last !== "done" && last !== "error") throw new Error("the stream broke off");
  } catch (error) {
    if (asking.signal.aborted) return;
    say("problem", state.texts.lost);
  }
  done();
}

// Server-sent events from a stream: blocks of lines, each followed by a blank line.
async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (let read = await reader.read(); !read.done; read = await reader.read()) {
    const blocks = (rest + read.value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const [kind, data] = block.split("\n");
      yield { kind: kind.slice("event: ".length), content: JSON.parse(data.slice("data: ".length)) };
    }
  }
}

function receive(kind, content) {
  if (kind === "partial") state.partial.set(content.sentence, content.text);
  if (kind === "sentence") {
    state.partial.delete(state.sentences.length);
    state.sentences.push(content);
  }
  if (kind === "done") state.after = content.after;
  if (kind === "error") say("problem", refusal(content.error));
  state.frame ??= requestAnimationFrame(show); // many events may arrive before the next frame
}

// The server's message in the page's language, if there is a translation of it.
const refusal = (error) => state.texts.refusals[error.replaceAll(/\d+(\.\d+)?/g, "#")] ?? error;

async function refused(answer, asking) {
  const wait = Number(answer.headers.get("Retry-After"));
  const problem = answer.status === 503 ? state.texts.busy(wait) : refusal((await answer.json()).error);
  if (asking.signal.aborted) return;
  say("problem", problem);
  if (wait) later(1000 * wait);
  done();
}

function done() {
  by("result").ariaBusy = "false";
  show();
  alternatives();
  flaws();
  by("which").replaceChildren(
    ...state.sentences.map(({ source }, i) => make("option", { value: i }, source)),
  );
  by("copy").disabled = !state.sentences.length;
  if (!by("attention").hidden) look();
}

// The translation --------------------------------------------------------------------------------

function say(id, text) {
  by(id).textContent = text;
}

function show() {
  cancelAnimationFrame(state.frame);
  state.frame = null;
  const parts = [];
  for (const sentence of state.sentences) parts.push(sentence.before, ...words(sentence));
  for (const [, text] of [...state.partial].sort(([a], [b]) => a - b)) {
    parts.push(parts.length ? " " : "", make("span", { class: "partial" }, text));
  }
  by("result").replaceChildren(...parts, state.after);
  by("result").querySelector(".word")?.setAttribute("tabindex", 0);
}

// The text of a sentence; each word that the model aligned is an element of its own.
function words({ translations, alignment }) {
  const text = translations[0].text;
  const parts = [];
  let at = 0;
  (alignment?.target ?? []).forEach((word, row) => {
    const from = text.indexOf(word, at);
    if (from < 0) return; // </s>, or a word that is not in the text
    parts.push(text.slice(at, from), spoken(word, alignment.source, alignment.weights[row]));
    at = from + word.length;
  });
  return [...parts, text.slice(at)];
}

function spoken(word, source, weights) {
  const span = make("span", { class: "word", tabindex: -1 }, word);
  span.onpointerenter = span.onfocus = span.onclick = () => attend(span, source, weights);
  span.onkeydown = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const all = [...by("result").querySelectorAll(".word")];
    all[all.indexOf(span) + step]?.focus();
  };
  return span;
}

function attend(span, source, weights) {
  for (const one of by("result").querySelectorAll(".word")) {
    one.classList.toggle("active", one === span);
    one.tabIndex = one === span ? 0 : -1;
  }
  const shown = source.flatMap((text, key) => {
    const part = make("span", {}, text);
    part.style.background = `rgb(var(--accent-rgb) / ${0.45 * weights[key]})`;
    return [part, " "];
  });
  by("echo").replaceChildren(...shown);
  const strongest = source
    .map((text, key) => ({ text, weight: weights[key] }))
    .sort((a, b) => b.weight - a.weight)
    .slice(0, 2)
    .map(({ text, weight }) => `“${text}” ${Math.round(100 * weight)} %`);
  say("said", state.texts.attends(span.textContent, strongest.join(", ")));
}

async function copy() {
  try {
    await navigator.clipboard.writeText(by("result").textContent);
    say("said", state.texts.copied);
  } catch {
    say("problem", state.texts.noCopy);
  }
}

// Alternatives, flaws, attention ----------------------------------------------------------------

function alternatives() {
  const [from, to] = [by("text").lang, by("result").lang];
  by("others").replaceChildren(...state.sentences.map((sentence) => {
    const others = sentence.translations.map(({ text, score }) =>
      make("li", { lang: to }, text, " ", make("span", { class: "score" }, score.toFixed(3))));
    return make("li", { lang: from }, sentence.source, make("ol", {}, ...others));
  }));
}

function flaws() {
  const found = new Set(state.sentences.flatMap((sentence) => sentence.flaws));
  say("flaws", [...found].map((flaw) => state.texts.flaws[flaw]).join("; "));
}

function open(tab) {
  for (const one of document.querySelectorAll("[role=tab]")) {
    const chosen = one === tab;
    one.ariaSelected = String(chosen);
    one.tabIndex = chosen ? 0 : -1;
    by(one.getAttribute("aria-controls")).hidden = !chosen;
  }
  tab.focus();
  if (tab.id === "tab-attention") look();
}

async function look() {
  const sentence = state.sentences[by("which").value]?.source;
  if (sentence && sentence === state.looked) return;
  state.looking?.abort();
  const looking = state.looking = new AbortController();
  state.looked = null;
  by("frame").removeAttribute("srcdoc");
  if (!sentence) return;
  try {
    const answer = await fetch("v1/look", {
      method: "POST", headers: headers(), body: JSON.stringify(question(sentence)),
      signal: looking.signal,
    });
    if (!answer.ok) return say("problem", refusal((await answer.json()).error));
    by("frame").srcdoc = await answer.text();
    state.looked = sentence;
  } catch {
    if (!looking.signal.aborted) say("problem", state.texts.lost);
  }
}

// Start ------------------------------------------------------------------------------------------

async function start() {
  speak(navigator.language.startsWith("ko") ? "ko" : "en");
  const [languages, settings] = await Promise.all(
    ["languages", "frontend/settings"].map(async (path) => (await fetch(path)).json()),
  );
  Object.assign(state, { languages, most: settings.charLimit });
  by("text").maxLength = settings.charLimit;
  by("key-row").hidden = !settings.keyRequired;
  const sources = languages.filter(({ targets }) => targets.length);
  by("source").replaceChildren(...sources.map(({ code }) => make("option", { value: code })));
  choose(settings.language.source.code, settings.language.target.code);
  count();
  by("interface").onchange = (event) => speak(event.target.value);
  by("source").onchange = () => { choose(by("source").value, by("target").value); ask(); };
  by("target").onchange = () => { choose(by("source").value, by("target").value); ask(); };
  by("swap").onclick = swap;
  by("copy").onclick = copy;
  by("key").onchange = ask;
  by("which").onchange = look;
  by("form").onsubmit = (event) => event.preventDefault();
  by("text").oninput = () => { count(); later(); }; // also while a Hangul syllable is composed
  by("text").onkeydown = (event) => { if (event.key === "Enter" && event.ctrlKey) ask(); };
  for (const tab of document.querySelectorAll("[role=tab]")) {
    tab.onclick = () => open(tab);
    tab.onkeydown = ({ key }) => {
      if (key !== "ArrowRight" && key !== "ArrowLeft") return;
      open(tab.nextElementSibling ?? tab.previousElementSibling);
    };
  }
  by("text").focus();
}

start().catch(() => say("problem", state.texts.lost));
