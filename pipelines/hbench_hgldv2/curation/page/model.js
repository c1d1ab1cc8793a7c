"use strict";
// The state of a review: where each label is, what was decided, how to undo it. No DOM here.

const UNASSIGNED = { status: "unassigned", group: "" };
const DROPPED = { status: "dropped", group: "" };
const inGroup = (group) => ({ status: "group", group });
const AMBIGUOUS = { status: "unassigned", group: "", open: true }; // fits several groups, and no one said which to take
const isDecided = (place) => place.status !== "unassigned" || Boolean(place.open);
const cardOf = (label, place) =>
  place.status === "group"
    ? "g:" + place.group
    : place.status === "dropped"
      ? "dropped"
      : place.open
        ? "ambiguous"
        : "c:" + label.cluster;
const isPile = (card) => card === "dropped" || card === "ambiguous";

function makeModel(data) {
  const labels = new Map(data.labels.map((label) => [label.id, label]));
  const model = {
    labels,
    places: new Map(data.labels.map((label) => [label.id, data.places[label.id] || UNASSIGNED])),
    groups: new Map(Object.entries(data.groups)),
    kinds: new Map(Object.entries(data.kinds)),
    decisions: [...data.decisions],
    approvals: [...data.approvals],
    order: [],
    cards: new Map(),
    sorted: new Map(),
    steps: review.steps(),
  };
  for (const label of data.labels) put(model, cardOf(label, model.places.get(label.id)), label.id);
  model.order.sort((a, b) => isPile(a) - isPile(b) || landmarksOf(model, b) - landmarksOf(model, a));
  return model;
}

// The sets of labels that a move is from and to; the new card stands where the old one does.
function cardsOf(model, cluster, before, place, touched) {
  const from = cardOf({ cluster }, before),
    to = cardOf({ cluster }, place);
  touched.add(from).add(to);
  openCard(model, to, isPile(to) ? undefined : from);
  return { source: model.cards.get(from), target: model.cards.get(to) };
}

function put(model, card, id) {
  openCard(model, card);
  model.cards.get(card).add(id);
}

function openCard(model, card, before) {
  if (model.cards.has(card)) return;
  model.cards.set(card, new Set());
  const at = before === undefined ? -1 : model.order.indexOf(before);
  if (at < 0) model.order.push(card);
  else model.order.splice(at, 0, card);
}

function landmarksOf(model, card) {
  let sum = 0;
  for (const id of model.cards.get(card) || []) sum += model.labels.get(id).landmarks;
  return sum;
}

// Labels of a card, the most doubtful first: the order of the data. Kept until the card changes.
function membersOf(model, card) {
  if (!model.sorted.has(card)) {
    const rank = (id) => model.labels.get(id).rank;
    model.sorted.set(
      card,
      [...(model.cards.get(card) || [])].sort((a, b) => rank(a) - rank(b)),
    );
  }
  return model.sorted.get(card);
}

// What a decision changes: [label, new place] pairs; the same rules as the replay, for decisions made on this page.
function effects(model, decision) {
  const all = (group) => membersOf(model, "g:" + group);
  const to = (ids, place) => ids.map((id) => [id, place]);
  switch (decision.op) {
    case "name":
      return to(decision.members_of, inGroup(decision.to));
    case "move":
      return to(decision.labels, inGroup(decision.to));
    case "drop":
      return to(decision.labels, DROPPED);
    case "ambiguous":
      return to(decision.labels, decision.use ? inGroup(decision.use) : AMBIGUOUS);
    case "split":
      return Object.entries(decision.into).flatMap(([group, ids]) => to(ids, inGroup(group)));
    case "merge":
      return decision.groups.filter((g) => g !== decision.to).flatMap((g) => to(all(g), inGroup(decision.to)));
    case "rename":
      return to(all(decision.group), inGroup(decision.to));
    default:
      return [];
  }
}

// Apply a decision that is not in the file yet; returns the cards it touched.
function decide(model, body, stamp, newGroups = {}) {
  const decision = { id: nextId(model), ...stamp, ...body };
  const step = {
    decision,
    // by index: [id, place] is slow until compiled
    places: effects(model, decision).map((move) => [move[0], model.places.get(move[0]), move[1]]),
    kind: decision.op === "set_kind" ? [decision.group, model.kinds.get(decision.group), decision.kind] : null,
    declared: Object.entries(newGroups).filter(([group]) => !model.groups.has(group)),
  };
  model.steps.add(step);
  return takeStep(model, step);
}

// Take a step, for the first time or again.
function takeStep(model, step) {
  for (const [group, table] of step.declared) {
    model.groups.set(group, table);
    model.kinds.set(group, table.kind);
  }
  const touched = shift(
    model,
    step.places.map((place) => [place[0], place[2]]),
  );
  if (step.kind) {
    model.kinds.set(step.kind[0], step.kind[2]);
    touched.add("g:" + step.kind[0]);
  }
  model.decisions.push(step.decision);
  return touched;
}

function shift(model, moves) {
  const touched = new Set();
  let last = {}; // the move before: labels move by whole cards, so the cards of thousands of them are looked up once
  for (const move of moves) {
    const id = move[0],
      place = move[1];
    const { cluster } = model.labels.get(id),
      before = model.places.get(id);
    if (last.before !== before || last.place !== place || last.cluster !== cluster)
      last = { before, place, cluster, ...cardsOf(model, cluster, before, place, touched) };
    last.source.delete(id);
    last.target.add(id);
    model.places.set(id, place);
  }
  for (const card of touched) model.sorted.delete(card);
  return touched;
}

function undo(model) {
  const step = model.steps.back();
  if (!step) return null;
  const touched = shift(model, step.places.map(([id, before]) => [id, before]).reverse());
  for (const [group] of step.declared) {
    model.groups.delete(group);
    model.kinds.delete(group);
  }
  if (step.kind) {
    model.kinds.set(step.kind[0], step.kind[1]);
    touched.add("g:" + step.kind[0]);
  }
  model.decisions.pop();
  return touched;
}

function redo(model) {
  const step = model.steps.again();
  return step ? takeStep(model, step) : null;
}

function nextId(model) {
  const numbers = model.decisions
    .map((d) => /^d(\d+)$/.exec(d.id))
    .filter(Boolean)
    .map((m) => Number(m[1]));
  return "d" + String(Math.max(0, ...numbers) + 1).padStart(3, "0");
}

// One line that is both JSON and YAML; the same bytes as `notation.flow`.
function flow(value) {
  if (Array.isArray(value)) return "[" + value.map(flow).join(", ") + "]";
  if (value && typeof value === "object")
    return (
      "{" +
      Object.entries(value)
        .map(([key, inner]) => flow(key) + ": " + flow(inner))
        .join(", ") +
      "}"
    );
  return JSON.stringify(value).replace(
    /[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]/g,
    (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"),
  );
}

function exportText(model, inputs) {
  const block = (title, lines, empty) => (lines.length ? [title + ":", ...lines] : [title + ": " + empty]);
  return [
    "schema: 1",
    "inputs: " + flow(inputs),
    ...block(
      "groups",
      [...model.groups].map(([name, group]) => "  " + flow(name) + ": " + flow(group)),
      "{}",
    ),
    ...block(
      "decisions",
      model.decisions.map((d) => "- " + flow(d)),
      "[]",
    ),
    ...block(
      "approvals",
      model.approvals.map((a) => "- " + flow(a)),
      "[]",
    ),
    "",
  ].join("\n");
}

// Read back what exportText wrote: the decisions made here, after those the page started with. Throws for anything
// else.
function importText(model, text, known) {
  const section = { groups: [], decisions: [], approvals: [] };
  let current = null;
  for (const line of text.split("\n")) {
    const head = /^(groups|decisions|approvals):(?: (?:\{\}|\[\]))?$/.exec(line);
    if (head) current = head[1];
    else if (current === "groups" && line.startsWith("  "))
      section.groups.push(...Object.entries(JSON.parse("{" + line + "}")));
    else if (current && line.startsWith("- ")) section[current].push(JSON.parse(line.slice(2)));
    else if (line && !line.startsWith("schema: 1") && !line.startsWith("inputs: "))
      throw new Error("line not understood: " + line);
  }
  const same = known.every((decision, at) => flow(decision) === flow(section.decisions[at] ?? null));
  if (!same) throw new Error("the file does not begin with the decisions this page was built from");
  const unknown = section.decisions
    .slice(known.length)
    .flatMap(namedIn)
    .filter((id) => !model.labels.has(id));
  if (unknown.length)
    throw new Error("the file names labels that are not on this page: " + unknown.slice(0, 3).join(", "));
  while (undo(model));
  model.steps.clear();
  const groups = Object.fromEntries(section.groups);
  for (const { id, ...body } of section.decisions.slice(known.length)) {
    const named = [body.to, body.group, ...(body.choices ?? []), ...Object.keys(body.into ?? {})].filter(
      (g) => g && g in groups,
    );
    decide(model, body, {}, Object.fromEntries(named.map((g) => [g, groups[g]])));
    model.decisions[model.decisions.length - 1].id = id;
  }
  for (const [name, group] of section.groups)
    if (!model.groups.has(name)) model.groups.set(name, group) && model.kinds.set(name, group.kind);
  model.approvals = section.approvals;
}

const namedIn = (decision) => [
  ...(decision.labels ?? []),
  ...(decision.members_of ?? []),
  ...Object.values(decision.into ?? {}).flatMap((ids) => (ids === "*" ? [] : ids)),
];

// The sha256 of a set of ids in the order of their code points, as Python sorts them.
async function digestOf(ids) {
  const before = ([x], [y]) => {
    for (let i = 0; i < Math.min(x.length, y.length); i++) if (x[i] !== y[i]) return x[i] - y[i];
    return x.length - y.length;
  };
  const byPoints = [...ids].map((id) => [Array.from(id, (c) => c.codePointAt(0)), id]).sort(before);
  const bytes = new TextEncoder().encode(byPoints.map(([, id]) => id).join("\n"));
  return Array.from(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)), (b) =>
    b.toString(16).padStart(2, "0"),
  ).join("");
}
