"use strict";
// What the page of a review shows: cards, rows, groups, progress. The state is in model.js.

const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const model = makeModel(data);
const FIRST = 12; // labels shown of a card before "show more"
const FIRST_OF_GROUP = 6; // what is decided needs less room
const FIRST_OF_CURRENT = 240; // and what is worked on, more; a card of thousands still opens at once
const STORE = "hbench-review-" + data.inputs.labels_sha256 + data.inputs.clusters_sha256;
const view = { card: null, row: 0, selected: new Set(), limits: new Map(), approved: new Map(), query: "", dragging: null, picked: null };
const whole = new Map(); // card -> its element, and the same for the cards that a search shows
const found = new Map();
const versions = new Map(); // how often a card has changed

const elementsNow = () => (view.query ? found : whole);
const elementOf = (card) => elementsNow().get(card);

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

const groupOf = (card) => (card && card.startsWith("g:") ? card.slice(2) : null);
const kindOf = (group) => model.kinds.get(group) ?? "human-made";
const PILES = { dropped: "Dropped", ambiguous: "Ambiguous, left open" };
const isCluster = (card) => Boolean(card?.startsWith("c:"));
const titleOf = (card) => groupOf(card) ?? PILES[card] ?? data.cluster_names[Number(card.slice(2))] + " …";

const matches = (id) => model.labels.get(id).text.includes(view.query);
const isWhole = (card) => !view.query || groupOf(card)?.toLowerCase().includes(view.query);
const shown = (card) => (isWhole(card) ? membersOf(model, card) : membersOf(model, card).filter(matches));

function visibleCards() {
  const undecidedOnly = $("open-only").checked;
  return model.order.filter((card) => model.cards.get(card).size && (!undecidedOnly || isCluster(card)) && (isWhole(card) || membersOf(model, card).some(matches)));
}

// The group a card's labels suggest most, each label counting its landmarks and its first suggestion twice.
function suggestionsFor(card) {
  const votes = new Map();
  for (const id of model.cards.get(card)) {
    const label = model.labels.get(id);
    label.suggestions.forEach((group, at) => votes.set(group, (votes.get(group) ?? 0) + (1 + label.landmarks) * (at ? 1 : 2)));
  }
  const best = [...votes].sort((a, b) => b[1] - a[1]).slice(0, 3).map(([group]) => group);
  return best.length ? best : [data.cluster_names[Number(card.slice(2))]].filter(Boolean);
}

function marked(text) {
  const at = view.query ? text.toLowerCase().indexOf(view.query) : -1;
  if (at < 0 || text.toLowerCase().length !== text.length) return [text];
  const end = at + view.query.length;
  return [text.slice(0, at), make("mark", { textContent: text.slice(at, end) }), text.slice(end)];
}

// The group a label's own vector suggests, where that is not what its card is or would be named.
function hintOf(label, card) {
  const [own] = label.suggestions;
  const expected = groupOf(card) ?? (isCluster(card) ? suggestionsFor(card)[0] : null);
  return own && expected && own !== expected ? own : null;
}

function rowOf(id, card, index) {
  const label = model.labels.get(id), hint = hintOf(label, card);
  const name = make("span", { className: "name", dir: "auto" }, ...marked(label.label));
  const tags = make("span", { className: "tags" });
  if (label.outlier) tags.append(make("span", { className: "doubt", textContent: "far from all others" }));
  else if (label.silhouette < 0) tags.append(make("span", { className: "doubt", textContent: "doubtful" }));
  if (hint) tags.append(make("span", { className: "hint", dir: "auto", textContent: "→ " + hint + "?", title: "The group nearest to this label" }));
  const row = make("li", { className: "row", draggable: true, role: "option" },
    make("input", { type: "checkbox", tabIndex: -1, checked: view.selected.has(id), ariaLabel: "select " + label.label }),
    make("span", { className: "what" }, name, " ", tags),
    make("span", { className: "count", textContent: label.landmarks.toLocaleString("en"), title: "landmarks" }));
  const more = make("span", { className: "more", dir: "auto" });
  if (/^Q\d+$/.test(id)) more.append(make("a", { href: "https://www.wikidata.org/wiki/" + id, rel: "noreferrer", target: "_blank", tabIndex: -1, textContent: id }), " ");
  more.append(label.examples.join(" · "));
  if (more.textContent) row.append(more);
  row.dataset.id = id;
  row.setAttribute("aria-selected", view.selected.has(id));
  if (card === view.card && index === view.row) markCurrent(row);
  return row;
}

// The row the keyboard is on also tells its suggestions, which 1 2 3 accept once it is selected.
function markCurrent(row) {
  const { suggestions } = model.labels.get(row.dataset.id);
  row.classList.add("at");
  if (suggestions.length) row.append(make("span", { className: "suggested", dir: "auto" }, "nearest: ", ...suggestions.flatMap((group, at) => [make("kbd", { textContent: at + 1 }), " " + group + "  "])));
}

function unmarkCurrent(row) {
  row.classList.remove("at");
  row.querySelector(".suggested")?.remove();
}

function showSelected(row) {
  const selected = view.selected.has(row.dataset.id);
  row.setAttribute("aria-selected", selected);
  row.querySelector("input").checked = selected;
}

function actionsOf(card) {
  const button = (text, key, run) => make("button", { textContent: text, title: text + " (" + key + ")", tabIndex: -1, onclick: (e) => (focusCard(card), run(), e.stopPropagation()) });
  const labels = [button("Move…", "M", askMove), button("Ambiguous…", "B", askAmbiguous)];
  if (isCluster(card))
    return [...suggestionsFor(card).map((group, at) => make("button", { className: at ? "" : "main", tabIndex: -1, textContent: group, title: "Name it so (" + (at ? at + 1 : "Enter") + ")", onclick: () => (focusCard(card), nameCard(group)) })),
      button("Name…", "N", askName), ...labels, button("Drop all", "Shift+D", dropCard)];
  if (groupOf(card) === null) return labels;
  return [button("Rename…", "R", askName), button("Merge…", "G", askMerge), button("Split…", "S", askSplit), ...labels,
    button(kindOf(groupOf(card)) === "natural" ? "→ human-made" : "→ natural", "T", toggleKind), button("Approve", "V", approve)];
}

const limitOf = (card) => view.limits.get(card) ?? (card === view.card ? FIRST_OF_CURRENT : groupOf(card) === null ? FIRST : FIRST_OF_GROUP);

function showMore(card) {
  view.limits.set(card, limitOf(card) + FIRST_OF_CURRENT);
  render(card);
}

function factsOf(card, ids) {
  const group = groupOf(card);
  const facts = make("div", { className: "facts" }, ids.length.toLocaleString("en") + (ids.length === 1 ? " label · " : " labels · ") + landmarksOf(model, card).toLocaleString("en") + " landmarks ");
  if (group === null) return facts;
  facts.append(make("span", { className: "tag " + kindOf(group), textContent: kindOf(group) }));
  const approved = view.approved.get(card);
  if (approved) facts.append(" ", make("span", { className: approved === "approved" ? "tag approved" : "tag stale", textContent: approved }));
  return facts;
}

function render(card) {
  const group = groupOf(card), ids = shown(card), limit = limitOf(card);
  const element = elementOf(card) ?? make("section", { className: "card", tabIndex: -1 });
  elementsNow().set(card, element);
  element.state = stateOf(card);
  element.dataset.card = card;
  element.setAttribute("aria-label", titleOf(card));
  element.classList.toggle("group", group !== null);
  element.classList.toggle("natural", group !== null && kindOf(group) === "natural");
  element.classList.toggle("pile", card in PILES);
  element.classList.toggle("current", card === view.card);
  const rows = make("ul", { className: "rows", role: "listbox", ariaMultiSelectable: "true", ariaLabel: titleOf(card) });
  rows.append(...ids.slice(0, limit).map((id, index) => rowOf(id, card, index)));
  element.replaceChildren(make("header", {}, make("h3", { dir: "auto" }, ...marked(titleOf(card))), factsOf(card, ids), make("div", { className: "actions" }, ...actionsOf(card))), rows);
  if (ids.length > limit) element.append(make("button", { className: "rest", tabIndex: -1, textContent: "show " + (ids.length - limit).toLocaleString("en") + " more", onclick: () => showMore(card) }));
  return element;
}

// What a card looks like depends on this alone.
const stateOf = (card) => [versions.get(card) ?? 0, card === view.card, limitOf(card), view.query].join("|");

// Bring the grid to the visible cards, touching only what differs.
function layout() {
  const wanted = visibleCards(), grid = $("cards");
  if (!wanted.includes(view.card)) [view.card, view.row] = [wanted[0] ?? null, 0];
  const present = new Set(wanted);
  for (const element of [...grid.children]) if (!present.has(element.dataset.card) || element !== elementOf(element.dataset.card)) element.remove();
  wanted.forEach((card, at) => {
    const element = elementOf(card)?.state === stateOf(card) ? elementOf(card) : render(card);
    if (grid.children[at] !== element) grid.insertBefore(element, grid.children[at] ?? null);
  });
  if (!wanted.length) grid.append(make("p", { id: "empty", textContent: view.query ? "Nothing matches." : "Everything is decided." }));
  summary();
}

function summary() {
  let decided = 0, landmarks = 0, total = 0;
  const groups = new Map();
  for (const [id, place] of model.places) {
    const count = model.labels.get(id).landmarks;
    total += count;
    if (!isDecided(place)) continue;
    decided += 1;
    landmarks += count;
    if (place.group) groups.set(place.group, (groups.get(place.group) ?? 0) + 1);
  }
  const percent = Math.round((100 * decided) / (model.places.size || 1));
  $("bar").style.width = percent + "%";
  $("bar").parentElement.setAttribute("aria-valuenow", percent);
  $("undo").disabled = !model.done.length;
  $("redo").disabled = !model.undone.length;
  document.body.dataset.decided = decided;
  view.summary = decided.toLocaleString("en") + " of " + model.places.size.toLocaleString("en") + " labels decided, " + Math.round((100 * landmarks) / (total || 1)) + " % of landmarks";
  $("none").hidden = groups.size > 0;
  $("groups").replaceChildren(...[...groups].sort((a, b) => a[0].localeCompare(b[0])).map(([group, count]) => {
    const entry = make("button", { onclick: () => focusCard("g:" + group, true) }, make("span", { dir: "auto" }, make("span", { className: "dot " + kindOf(group), title: kindOf(group) }), group), make("span", { className: "count", textContent: count }));
    entry.dataset.card = "g:" + group;
    return entry;
  }));
}

function say(text) {
  const status = $("status");
  status.textContent = text;
  for (const fading of status.getAnimations()) fading.cancel();
  status.animate([{ opacity: 1 }, { opacity: 1, offset: 0.9 }, { opacity: 0 }], { duration: 5000, fill: "forwards" });
  $("summary").textContent = view.summary;
}
