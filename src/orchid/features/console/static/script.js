// The console works without this script. It adds live updates, keys and the theme.
"use strict";

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

function stored(name) {
  try { return localStorage.getItem(`orchid-${name}`); } catch { return null; }
}

function store(name, value) {
  try { localStorage.setItem(`orchid-${name}`, value); } catch { /* private window */ }
}

// -- theme and keys, chosen on the page "you" ---------------------------------------------

function applyTheme() {
  const theme = stored("theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

function bindSettings() {
  for (const field of $$("[data-setting]")) {
    field.closest("[hidden]")?.removeAttribute("hidden");
    const value = stored(field.dataset.setting) ?? "default";
    if (field.type === "radio") field.checked = field.value === value;
    field.addEventListener("change", () => { store(field.dataset.setting, field.value); applyTheme(); });
  }
}

// -- live updates -------------------------------------------------------------------------

// The page fetches itself. The browser parses it as a document, so no text becomes HTML here.
function fetchPage(then) {
  const request = new XMLHttpRequest();
  request.open("GET", location.href);
  request.responseType = "document";
  request.addEventListener("load", () => {
    if (request.status === 200 && request.response) then(request.response);
    else if (request.status === 401) say("Your session has ended. Open a page in another tab to sign in again.");
  });
  request.send();
}

function say(...words) {
  const note = $(".live-note");
  note.replaceChildren(...words);
  note.hidden = false;
}

function isBusy(element) {
  if (element.contains(document.activeElement) && document.activeElement !== document.body) return true;
  const selection = getSelection();
  if (!selection.isCollapsed && element.contains(selection.anchorNode)) return true;
  return $$("textarea, input:not([type=hidden]), select", element).some((field) =>
    field.type === "radio" || field.type === "checkbox"
      ? field.checked !== field.defaultChecked
      : field.tagName !== "SELECT" && field.value !== field.defaultValue);
}

const rowsOf = (element) => $$("a.row", element).map((link) => link.href);

function replace(element, next) {
  element.replaceWith(document.adoptNode(next));
}

function offer(element, next) {
  const before = new Set(rowsOf(element));
  const fresh = rowsOf(next).filter((row) => !before.has(row)).length;
  const note = $(".live-note");
  const words = fresh === 1 ? "1 new row. " : fresh ? `${fresh} new rows. ` : "Rows have changed. ";
  const button = document.createElement("button");
  button.className = "button";
  button.textContent = "Show";
  button.addEventListener("click", () => { note.hidden = true; note.replaceChildren(); fetchPage(renew); });
  say(words, button);
}

// Elements without rows are replaced; rows only when the user asks, so that none moves under a pointer.
function update(page) {
  for (const element of $$("[data-live]")) {
    const next = page.getElementById(element.id);
    if (!next || next.isEqualNode(element) || isBusy(element)) continue;
    if (element.dataset.live === "rows" && rowsOf(element).length) {
      if (rowsOf(element).join() !== rowsOf(next).join() || stateOf(element) !== stateOf(next)) offer(element, next);
    } else replace(element, next);
  }
}

const stateOf = (element) => $$(".state", element).map((state) => state.textContent).join();

function renew(page) {
  for (const element of $$("[data-live]")) {
    const next = page.getElementById(element.id);
    if (next && !isBusy(element)) replace(element, next);
  }
}

let streams = [];
let timer = 0;
let pending = 0;
let fetched = -Infinity;

// At once after a quiet second, so that a user sees the result of an action soon.
function changed() {
  if (pending) return;
  pending = setTimeout(() => {
    pending = 0;
    fetched = performance.now();
    if (!document.hidden) fetchPage(update);
  }, Math.max(50, fetched + 1000 - performance.now()));
}

// Only the visible tab has streams: a browser opens six connections to a host.
function follow() {
  for (const stream of streams) stream.close();
  streams = [];
  clearInterval(timer);
  const { liveOf, liveUrl, liveEvery } = document.body.dataset;
  if (document.hidden) return;
  if (liveEvery) timer = setInterval(changed, liveEvery * 1000);
  if (!liveOf) return;
  for (const of of liveOf.split(",")) {
    const stream = new EventSource(`${liveUrl}?of=${encodeURIComponent(of)}`);
    stream.addEventListener("open", changed); // something may have changed since the page was made
    stream.addEventListener("change", changed);
    streams.push(stream);
  }
}

// -- keys ---------------------------------------------------------------------------------

function move(step) {
  const rows = $$("a.row");
  if (!rows.length) return;
  const at = rows.indexOf(document.activeElement);
  const next = at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + step));
  rows[next].focus();
}

// Moves to the form with the decision chosen; sends nothing.
function choose(decision) {
  const field = $(`input[name=decision][value=${decision}]`);
  if (!field) return;
  field.checked = true;
  field.focus();
}

const KEYS = {
  "/": () => ($("[data-search]") ?? $(".filters input, .filters select"))?.focus(),
  j: () => move(1),
  k: () => move(-1),
  a: () => choose("approve"),
  d: () => choose("deny"),
  "?": () => $("dialog.keys").showModal(),
};

function pressed(event) {
  if (stored("keys") === "off" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input:not([type=radio]), textarea, select, dialog")) return;
  const act = KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

// A form is sent once, however often its button is pressed.
function sent(event) {
  const form = event.target;
  if (form.method !== "post") return;
  if (form.dataset.sent) event.preventDefault();
  form.dataset.sent = "yes";
}

applyTheme();
bindSettings();
$(".side [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" }); // on narrow screens
document.addEventListener("keydown", pressed);
document.addEventListener("submit", sent);
document.addEventListener("visibilitychange", () => { follow(); if (!document.hidden) changed(); });
addEventListener("pagehide", () => { for (const stream of streams) stream.close(); });
addEventListener("pageshow", () => { for (const form of $$("form")) delete form.dataset.sent; follow(); });
