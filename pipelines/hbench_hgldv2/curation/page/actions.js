"use strict";
// What a curator does: each action is one decision, told to the model and shown.

function stamp() {
  const by = $("reviewer").value.trim();
  return { ...(by ? { by } : {}), at: new Date().toISOString().slice(0, 10) };
}

function commit(body, newGroups, text) {
  const touched = decide(model, body, stamp(), newGroups);
  settle(touched, text);
}

function clearSelection() {
  view.selected.clear();
  showSelection();
}

function settle(touched, text) {
  clearSelection();
  if (view.card && !model.cards.get(view.card)?.size) [view.card, view.row] = [following(), 0];
  view.row = Math.max(0, Math.min(view.row, view.card ? shown(view.card).length - 1 : 0));
  for (const card of [...touched, view.card]) changed(card);
  layout();
  say(text);
  save();
  void checkApprovals();
}

// The card that comes after the current one, which is now empty.
function following() {
  const visible = new Set(visibleCards());
  return model.order.slice(model.order.indexOf(view.card)).find((card) => visible.has(card)) ?? null;
}

const chosen = () => {
  const ids = view.card ? shown(view.card) : [];
  const picked = ids.filter((id) => view.selected.has(id));
  return picked.length ? picked : ids[view.row] === undefined ? [] : [ids[view.row]];
};
const counted = (ids) => (ids.length === 1 ? model.labels.get(ids[0]).label : ids.length + " labels");
const declared = (group, kind) =>
  model.groups.has(group) ? {} : { [group]: { kind: kind || data.known_kinds[group] || data.kind_names[0] } };

function nameCard(group, kind) {
  if (!isCluster(view.card)) return;
  commit(
    { op: "name", members_of: membersOf(model, view.card), to: group },
    declared(group, kind),
    "named “" + group + "”",
  );
}

function moveTo(group, kind, ids = chosen()) {
  const from = new Set(ids.map((id) => model.places.get(id).group));
  ids = ids.filter((id) => model.places.get(id).group !== group);
  if (!ids.length) return;
  const expect = from.size === 1 && [...from][0] ? { expect_from: [...from][0] } : {};
  commit(
    { op: "move", labels: ids, to: group, ...expect },
    declared(group, kind),
    counted(ids) + " moved to “" + group + "”",
  );
}

function mergeInto(group, kind) {
  const own = groupOf(view.card);
  if (own === null || own === group) return;
  const said = "“" + own + "” merged into “" + group + "”";
  commit({ op: "merge", groups: [own], to: group }, declared(group, kind), said);
  focusCard("g:" + group);
}

function rename(group, kind) {
  const own = groupOf(view.card);
  if (own === null || own === group) return;
  if (model.cards.get("g:" + group)?.size) return mergeInto(group, kind);
  commit(
    { op: "rename", group: own, to: group },
    declared(group, kindOf(own)),
    "“" + own + "” renamed “" + group + "”",
  );
  focusCard("g:" + group);
}

function splitOff(group, kind) {
  const own = groupOf(view.card),
    ids = chosen();
  if (own === null || own === group || !ids.length) return;
  commit(
    { op: "split", group: own, into: { [group]: ids } },
    declared(group, kind),
    counted(ids) + " split off as “" + group + "”",
  );
}

function drop(ids) {
  ids = ids.filter((id) => model.places.get(id).status !== "dropped");
  if (ids.length) commit({ op: "drop", labels: ids }, {}, counted(ids) + " dropped");
}

const dropCard = () => isCluster(view.card) && drop(shown(view.card));

function setAmbiguous(ids, { choices, use, rule }) {
  const body = { op: "ambiguous", labels: ids, choices, ...(use ? { use } : {}), ...(rule ? { rule } : {}) };
  const groups = Object.assign({}, ...choices.map((group) => declared(group)));
  commit(body, groups, counted(ids) + (use ? " ambiguous, taken as “" + use + "”" : " ambiguous, left open"));
}

// A link is between all selected labels, in whatever cards they are.
function link(op) {
  const labels = [...view.selected].sort((a, b) => model.labels.get(a).rank - model.labels.get(b).rank);
  if (labels.length < 2) return say("a link needs two selected labels; Ctrl+click selects in other cards too");
  commit({ op, labels }, {}, counted(labels) + (op === "must_link" ? " belong together" : " must not be together"));
}

function toggleKind() {
  const group = groupOf(view.card);
  if (group === null) return;
  if (allKinds().length < 2) return say("there is only one kind; a new group may have another");
  const kind = kindAfter(kindOf(group));
  commit({ op: "set_kind", group, kind }, {}, "“" + group + "” is " + kind);
}

async function approve() {
  const group = groupOf(view.card),
    reviewer = $("reviewer").value.trim();
  if (group === null) return;
  if (!reviewer) return ($("reviewer").focus(), say("enter your initials to approve"));
  const approval = { reviewer, group, sha256_of_members: await digestOf(model.cards.get(view.card)) };
  model.approvals = [...model.approvals.filter((a) => a.reviewer !== reviewer || a.group !== group), approval];
  settle(["g:" + group], "“" + group + "” approved by " + reviewer);
}

const digests = new Map(); // card -> its members, and their hash

// An approval holds for the members it was given to: what changed since is told.
async function checkApprovals() {
  for (const approval of model.approvals) {
    const card = "g:" + approval.group,
      members = membersOf(model, card);
    if (digests.get(card)?.members !== members) digests.set(card, { members, sha256: await digestOf(members) });
    const state = digests.get(card).sha256 === approval.sha256_of_members ? "approved" : "approval is stale";
    if (view.approved.get(card) === state) continue;
    view.approved.set(card, state);
    changed(card);
    draw();
  }
}

function stepBack() {
  const touched = undo(model);
  if (touched) settle(touched, "undone");
}

function stepForward() {
  const touched = redo(model);
  if (touched) settle(touched, "redone");
}
