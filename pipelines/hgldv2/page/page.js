"use strict";
// The page of a review: cards, keyboard, mouse, dialog, files. The state is in model.js.

const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const model = makeModel(data);
const FIRST = 12; // labels shown of a card before "show more"
const FIRST_OF_GROUP = 6; // what is decided needs less room
const STORE = "hbench-review-" + data.inputs.labels_sha256 + data.inputs.clusters_sha256;
const view = { card: null, row: 0, selected: new Set(), open: new Set(), query: "", dragging: null, picked: null };
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
const titleOf = (card) =>
  groupOf(card) ?? (card === "dropped" ? "Dropped" : data.cluster_names[Number(card.slice(2))] + " …");

const matches = (id) => model.labels.get(id).text.includes(view.query);
const isWhole = (card) => !view.query || groupOf(card)?.toLowerCase().includes(view.query);
const shown = (card) => (isWhole(card) ? membersOf(model, card) : membersOf(model, card).filter(matches));

function visibleCards() {
  const undecidedOnly = $("open-only").checked;
  return model.order.filter((card) => model.cards.get(card).size && (!undecidedOnly || card.startsWith("c:")) && (isWhole(card) || membersOf(model, card).some(matches)));
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

function rowOf(id, card, index) {
  const label = model.labels.get(id);
  const name = make("span", { className: "name", dir: "auto" }, ...marked(label.label));
  if (label.outlier) name.append(" ", make("span", { className: "doubt", textContent: "far from all others" }));
  else if (label.silhouette < 0) name.append(" ", make("span", { className: "doubt", textContent: "doubtful" }));
  const row = make("li", { className: "row", draggable: true, role: "option" },
    make("input", { type: "checkbox", tabIndex: -1, checked: view.selected.has(id), ariaLabel: "select " + label.label }),
    name, make("span", { className: "count", textContent: label.landmarks.toLocaleString("en"), title: "landmarks" }));
  const more = make("span", { className: "more", dir: "auto" });
  if (/^Q\d+$/.test(id)) more.append(make("a", { href: "https://www.wikidata.org/wiki/" + id, rel: "noreferrer", target: "_blank", tabIndex: -1, textContent: id }), " ");
  more.append(label.examples.join(" · "));
  row.append(more);
  row.dataset.id = id;
  row.setAttribute("aria-selected", view.selected.has(id));
  row.classList.toggle("at", card === view.card && index === view.row);
  return row;
}

function actionsOf(card) {
  const button = (text, key, run) => make("button", { textContent: text, title: text + " (" + key + ")", tabIndex: -1, onclick: (e) => (focusCard(card), run(), e.stopPropagation()) });
  if (card.startsWith("c:"))
    return [...suggestionsFor(card).map((group, at) => make("button", { className: at ? "" : "main", tabIndex: -1, textContent: group, title: "Name it so (" + (at ? at + 1 : "Enter") + ")", onclick: () => (focusCard(card), nameCard(group)) })),
      button("Name…", "N", askName), button("Move…", "M", askMove), button("Drop", "Shift+D", dropCard)];
  if (card === "dropped") return [button("Move…", "M", askMove)];
  return [button("Rename…", "R", askName), button("Merge…", "G", askMerge), button("Split…", "S", askSplit), button("Move…", "M", askMove),
    button(kindOf(groupOf(card)) === "natural" ? "→ human-made" : "→ natural", "T", toggleKind), button("Approve", "V", approve)];
}

function render(card) {
  const group = groupOf(card), ids = shown(card), limit = view.open.has(card) || card === view.card ? Infinity : group === null ? FIRST : FIRST_OF_GROUP;
  const element = elementOf(card) ?? make("section", { className: "card", tabIndex: -1 });
  elementsNow().set(card, element);
  element.state = stateOf(card);
  element.dataset.card = card;
  element.setAttribute("aria-label", titleOf(card));
  element.classList.toggle("group", group !== null);
  element.classList.toggle("natural", group !== null && kindOf(group) === "natural");
  element.classList.toggle("current", card === view.card);
  const facts = make("div", { className: "facts" }, ids.length.toLocaleString("en") + " labels · " + landmarksOf(model, card).toLocaleString("en") + " landmarks ");
  if (group !== null) facts.append(make("span", { className: "tag " + kindOf(group), textContent: kindOf(group) }));
  const rows = make("ul", { className: "rows", role: "listbox", ariaMultiSelectable: "true", ariaLabel: titleOf(card) });
  rows.append(...ids.slice(0, limit).map((id, index) => rowOf(id, card, index)));
  element.replaceChildren(make("header", {}, make("h3", { dir: "auto" }, ...marked(titleOf(card))), facts, make("div", { className: "actions" }, ...actionsOf(card))), rows);
  if (ids.length > limit) element.append(make("button", { className: "rest", tabIndex: -1, textContent: "show " + (ids.length - limit).toLocaleString("en") + " more", onclick: () => (view.open.add(card), render(card)) }));
  return element;
}

// What a card looks like depends on this alone.
const stateOf = (card) => [versions.get(card) ?? 0, card === view.card, view.open.has(card), view.query].join("|");

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
    if (place.status === "unassigned") continue;
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
  $("groups").replaceChildren(...[...groups].sort((a, b) => a[0].localeCompare(b[0])).map(([group, count]) => {
    const entry = make("button", { onclick: () => focusCard("g:" + group, true) }, make("span", { dir: "auto" }, make("span", { className: "dot " + kindOf(group) }), group), make("span", { className: "count", textContent: count }));
    entry.dataset.card = "g:" + group;
    return entry;
  }));
}

function say(text) {
  $("status").textContent = text + (text ? " — " : "") + view.summary;
}

// --- deciding ---

function stamp() {
  const by = $("reviewer").value.trim();
  return { ...(by ? { by } : {}), at: new Date().toISOString().slice(0, 10) };
}

function commit(body, newGroups, text) {
  const touched = decide(model, body, stamp(), newGroups);
  settle(touched, text);
}

function settle(touched, text) {
  view.selected.clear();
  const before = visibleIndex();
  if (view.card && !model.cards.get(view.card)?.size) [view.card, view.row] = [visibleCards()[before] ?? null, 0];
  view.row = Math.max(0, Math.min(view.row, view.card ? shown(view.card).length - 1 : 0));
  for (const card of [...touched, view.card]) versions.set(card, (versions.get(card) ?? 0) + 1);
  layout();
  say(text);
  save();
}

function visibleIndex() {
  const order = model.order.indexOf(view.card);
  return visibleCards().filter((card) => model.order.indexOf(card) < order).length;
}

const chosen = () => {
  const ids = view.card ? shown(view.card) : [];
  const picked = ids.filter((id) => view.selected.has(id));
  return picked.length ? picked : ids[view.row] === undefined ? [] : [ids[view.row]];
};
const counted = (ids) => (ids.length === 1 ? model.labels.get(ids[0]).label : ids.length + " labels");
const declared = (group, kind) => (model.groups.has(group) ? {} : { [group]: { kind: kind ?? data.known_kinds[group] ?? "human-made" } });

function nameCard(group, kind) {
  if (!view.card?.startsWith("c:")) return;
  commit({ op: "name", members_of: membersOf(model, view.card), to: group }, declared(group, kind), "named “" + group + "”");
}

function moveTo(group, kind, ids = chosen()) {
  const from = new Set(ids.map((id) => model.places.get(id).group));
  ids = ids.filter((id) => model.places.get(id).group !== group);
  if (!ids.length) return;
  const expect = from.size === 1 && [...from][0] ? { expect_from: [...from][0] } : {};
  commit({ op: "move", labels: ids, to: group, ...expect }, declared(group, kind), counted(ids) + " moved to “" + group + "”");
}

function mergeInto(group, kind) {
  const own = groupOf(view.card);
  if (own === null || own === group) return;
  commit({ op: "merge", groups: [own], to: group }, declared(group, kind), "“" + own + "” merged into “" + group + "”");
  focusCard("g:" + group);
}

function rename(group, kind) {
  const own = groupOf(view.card);
  if (own === null || own === group) return;
  if (model.cards.get("g:" + group)?.size) return mergeInto(group, kind);
  commit({ op: "rename", group: own, to: group }, declared(group, kindOf(own)), "“" + own + "” renamed “" + group + "”");
  focusCard("g:" + group);
}

function splitOff(group, kind) {
  const own = groupOf(view.card), ids = chosen();
  if (own === null || own === group || !ids.length) return;
  commit({ op: "split", group: own, into: { [group]: ids } }, declared(group, kind), counted(ids) + " split off as “" + group + "”");
}

function drop(ids) {
  ids = ids.filter((id) => model.places.get(id).status !== "dropped");
  if (ids.length) commit({ op: "drop", labels: ids }, {}, counted(ids) + " dropped");
}

const dropCard = () => view.card && drop(shown(view.card));

function toggleKind() {
  const group = groupOf(view.card);
  if (group === null) return;
  const kind = kindOf(group) === "natural" ? "human-made" : "natural";
  commit({ op: "set_kind", group, kind }, {}, "“" + group + "” is " + kind);
}

async function approve() {
  const group = groupOf(view.card), reviewer = $("reviewer").value.trim();
  if (group === null) return;
  if (!reviewer) return $("reviewer").focus(), say("enter your initials to approve");
  const approval = { reviewer, group, sha256_of_members: await digestOf(model.cards.get(view.card)) };
  model.approvals = [...model.approvals.filter((a) => a.reviewer !== reviewer || a.group !== group), approval];
  say("“" + group + "” approved by " + reviewer);
  save();
}

function stepBack() {
  const touched = undo(model);
  if (touched) settle(touched, "undone");
}

function stepForward() {
  const touched = redo(model);
  if (touched) settle(touched, "redone");
}

// --- the picker ---

const askName = () => (groupOf(view.card) === null ? ask("Name this cluster", suggestionsFor(view.card), nameCard) : ask("Rename “" + groupOf(view.card) + "”", [], rename));
const askMove = () => chosen().length && ask("Move " + counted(chosen()) + " to", model.labels.get(chosen()[0]).suggestions, moveTo);
const askMerge = () => (view.card?.startsWith("c:") ? ask("Add this cluster to", suggestionsFor(view.card), nameCard) : groupOf(view.card) && ask("Merge “" + groupOf(view.card) + "” into", [], mergeInto));
const askSplit = () => groupOf(view.card) && chosen().length && ask("Split " + counted(chosen()) + " off as", model.labels.get(chosen()[0]).suggestions, splitOff);

function ask(title, first, run) {
  view.picked = { run, first, at: 0 };
  $("picker-title").textContent = title;
  $("picker-text").value = "";
  offer();
  $("picker").showModal();
  $("picker-text").focus();
}

function offer() {
  const typed = $("picker-text").value, folded = typed.trim().toLowerCase();
  const known = [...new Set([...view.picked.first, ...[...model.groups.keys()].sort((a, b) => a.localeCompare(b)), ...Object.keys(data.known_kinds)])];
  const found = known.filter((group) => group.toLowerCase().includes(folded)).slice(0, 60);
  if (typed && !known.includes(typed)) found.push(typed);
  view.picked.choices = found;
  view.picked.at = Math.max(0, Math.min(view.picked.at, found.length - 1));
  if (typed && known.includes(typed)) view.picked.at = found.indexOf(typed);
  $("choices").replaceChildren(...found.map((group, at) => {
    const item = make("li", { role: "option", textContent: group, dir: "auto", onclick: () => ((view.picked.at = at), finish()) });
    if (!known.includes(group)) item.append(make("span", { className: "facts", textContent: "  new" }));
    item.setAttribute("aria-selected", at === view.picked.at);
    return item;
  }));
  const pick = found[view.picked.at];
  $("picker-kind").hidden = !pick || model.groups.has(pick);
  if (pick && data.known_kinds[pick]) document.querySelector(`input[name=kind][value="${data.known_kinds[pick]}"]`).checked = true;
  $("choices").children[view.picked.at]?.scrollIntoView({ block: "nearest" });
}

// A hidden field keeps the keyboard until the next frame, so a quick next key would be lost in it.
function shut() {
  $("picker-text").blur();
  $("picker").close();
}

function finish() {
  const group = view.picked.choices[view.picked.at];
  const kind = document.querySelector("input[name=kind]:checked").value;
  shut();
  if (group) view.picked.run(group, kind);
}

$("picker-text").addEventListener("input", () => ((view.picked.at = 0), offer()));
$("picker").addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step && event.target.type !== "radio") {
    view.picked.at = (view.picked.at + step + view.picked.choices.length) % view.picked.choices.length;
    offer();
    event.preventDefault();
  } else if (event.key === "Enter" && event.target.id !== "picker-cancel") {
    finish();
    event.preventDefault();
  }
  event.stopPropagation();
});
$("picker-ok").onclick = finish;
$("picker-cancel").onclick = shut;
