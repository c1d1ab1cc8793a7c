"use strict";
// What a curator notes beside where a label goes: that it is ambiguous, why, and what is known of it and was decided.

function closing(dialog, ...buttons) {
  for (const button of buttons) $(button).onclick = () => $(dialog).close();
}

const several = (ids, most = 3) =>
  ids
    .slice(0, most)
    .map((id) => model.labels.get(id)?.label ?? id)
    .join(", ") + (ids.length > most ? " and " + (ids.length - most) + " more" : "");

// A decision in words.
function told(decision) {
  switch (decision.op) {
    case "name":
      return several(decision.members_of) + " → “" + decision.to + "”";
    case "move":
      return several(decision.labels) + " → “" + decision.to + "”";
    case "split":
      return (
        "“" +
        decision.group +
        "” → " +
        Object.entries(decision.into)
          .map(([group, ids]) => "“" + group + "”: " + (ids === "*" ? "the rest" : several(ids)))
          .join("; ")
      );
    case "merge":
      return decision.groups.map((group) => "“" + group + "”").join(", ") + " → “" + decision.to + "”";
    case "rename":
      return "“" + decision.group + "” → “" + decision.to + "”";
    case "set_kind":
      return "“" + decision.group + "” is " + decision.kind;
    case "ambiguous":
      return (
        several(decision.labels) +
        ": " +
        decision.choices.join(" or ") +
        (decision.use ? "; taken as “" + decision.use + "”" : "; left open") +
        (decision.rule ? " (" + decision.rule + ")" : "")
      );
    default:
      return several(decision.labels);
  }
}

function listed(decisions) {
  return decisions.map((decision) =>
    make(
      "li",
      {},
      make("span", { className: "op", textContent: decision.op.replace("_", " ") }),
      " ",
      make("span", { dir: "auto", textContent: told(decision) }),
      make("span", {
        className: "facts",
        textContent: [" " + decision.id, decision.by, decision.at, decision.why].filter(Boolean).join(" · "),
      }),
    ),
  );
}

function showHistory() {
  $("history-list").replaceChildren(...listed([...model.decisions].reverse().slice(0, 500)));
  $("history-title").textContent = model.decisions.length
    ? model.decisions.length.toLocaleString("en") + " decisions, the newest first"
    : "Nothing is decided yet";
  $("history").showModal();
}

// What is known of a label, by the names of the fields.
const FACTS = {
  "class id": "id",
  ...(data.counted === "landmark"
    ? { "in train": "n_train", "in index": "n_index", ambiguous: "n_ambiguous" }
    : { count: "landmarks" }),
  cluster: "cluster",
  "cluster name": "name",
  distance: "distance",
  silhouette: "silhouette",
  "nearest cluster": "nearest_cluster",
  margin: "margin",
  outlier: "outlier",
  "co-association": "coassociation",
  suggestions: "suggestions",
  "subclass of": "subclass_of",
  examples: "examples",
};
const FRACTIONS = new Set(["distance", "silhouette", "margin", "coassociation"]);
const factOf = (label, field) =>
  Array.isArray(label[field])
    ? label[field].join(", ")
    : FRACTIONS.has(field)
      ? (label[field]?.toFixed(4) ?? "")
      : String(label[field]);

// All that is known of a label, and the decisions that speak of it.
function showDetails() {
  const id = shown(view.card ?? "")[view.row];
  if (!id) return;
  const label = model.labels.get(id),
    spoke = new Set(
      model.steps.made.filter((step) => step.places.some(([moved]) => moved === id)).map((step) => step.decision),
    );
  const linked = (name, text) =>
    name === "class id" && /^Q\d+$/.test(text)
      ? make("a", {
          href: "https://www.wikidata.org/wiki/" + text,
          rel: "noreferrer",
          target: "_blank",
          textContent: text,
        })
      : text;
  const cell = (name, text) =>
    make("tr", {}, make("th", { scope: "row", textContent: name }), make("td", { dir: "auto" }, linked(name, text)));
  $("details-title").textContent = label.label;
  $("details-table").replaceChildren(
    ...Object.entries(FACTS)
      .map(([name, field]) => [name, factOf(label, field)])
      .filter(([, text]) => text)
      .map(([name, text]) => cell(name, text)),
  );
  const decisions = model.decisions.filter((decision) => spoke.has(decision) || namedIn(decision).includes(id));
  $("details-list").replaceChildren(
    ...(decisions.length
      ? listed(decisions)
      : [make("li", { className: "facts", textContent: "No decision speaks of it." })]),
  );
  $("details").showModal();
}

// --- why ---

function askWhy() {
  const last = model.steps.made.at(-1)?.decision;
  if (!last) return say("decide something first, then say why");
  $("why-title").textContent = "Why? " + last.op.replace("_", " ") + " " + told(last);
  $("why-text").value = last.why ?? "";
  $("why").showModal();
}

function keepWhy() {
  const step = model.steps.made.at(-1),
    why = $("why-text").value.trim();
  const { id, by, at, why: _, ...body } = step.decision;
  step.decision = { id, ...(by ? { by } : {}), ...(at ? { at } : {}), ...(why ? { why } : {}), ...body };
  model.decisions[model.decisions.length - 1] = step.decision;
  $("why-text").blur();
  $("why").close();
  say(why ? "reason kept" : "no reason kept");
  save();
}

// --- ambiguous ---

const asked = { ids: [], choices: [] };

function askAmbiguous() {
  const ids = chosen();
  if (!ids.length) return;
  [asked.ids, asked.choices] = [ids, []];
  const own = groupOf(view.card);
  if (own !== null) asked.choices.push(own);
  $("ambiguous-title").textContent = counted(ids) + (ids.length === 1 ? " fits several groups" : " fit several groups");
  $("ambiguous-text").value = $("ambiguous-rule").value = "";
  offerChoices();
  $("ambiguous").showModal();
  $("ambiguous-text").focus();
}

function offerChoices() {
  const typed = $("ambiguous-text").value,
    folded = typed.trim().toLowerCase();
  const known = knownGroups([...asked.choices, ...model.labels.get(asked.ids[0]).suggestions]);
  const offered = known
    .filter((group) => asked.choices.includes(group) || group.toLowerCase().includes(folded))
    .slice(0, 40);
  if (typed && !known.includes(typed)) offered.push(typed);
  asked.first = known.includes(typed)
    ? typed
    : (offered.find((group) => !asked.choices.includes(group) && group.toLowerCase().includes(folded)) ?? typed);
  $("ambiguous-choices").replaceChildren(
    ...offered.map((group) =>
      make(
        "li",
        { className: typed && group === asked.first ? "first" : "" },
        make(
          "label",
          { dir: "auto" },
          make("input", {
            type: "checkbox",
            checked: asked.choices.includes(group),
            onchange: () => toggleChoice(group),
          }),
          " " + group,
        ),
      ),
    ),
  );
  const before = $("ambiguous-use").value;
  $("ambiguous-use").replaceChildren(
    make("option", { value: "", textContent: "none: leave it open" }),
    ...asked.choices.map((group) => make("option", { value: group, textContent: group })),
  );
  $("ambiguous-use").value = asked.choices.includes(before) ? before : "";
  $("ambiguous-ok").disabled = asked.choices.length < 2;
}

function toggleChoice(group) {
  if (!group) return;
  asked.choices = asked.choices.includes(group)
    ? asked.choices.filter((one) => one !== group)
    : [...asked.choices, group];
  $("ambiguous-text").value = "";
  offerChoices();
}

function keepAmbiguous() {
  if (asked.choices.length < 2) return;
  const answer = { choices: asked.choices, use: $("ambiguous-use").value, rule: $("ambiguous-rule").value.trim() };
  document.activeElement.blur();
  $("ambiguous").close();
  setAmbiguous(asked.ids, answer);
}

$("ambiguous-text").addEventListener("input", offerChoices);
$("ambiguous").addEventListener("keydown", (event) => {
  event.stopPropagation();
  if (event.key !== "Enter" || event.target.matches("button, select")) return;
  event.preventDefault();
  if (event.target.id === "ambiguous-text" && $("ambiguous-text").value) toggleChoice(asked.first);
  else keepAmbiguous();
});
$("why").addEventListener("keydown", (event) => {
  event.stopPropagation();
  if (event.key !== "Enter" || event.target.matches("button")) return;
  event.preventDefault();
  keepWhy();
});
$("ambiguous-ok").onclick = keepAmbiguous;
$("why-ok").onclick = keepWhy;
$("history-open").onclick = showHistory;
closing("ambiguous", "ambiguous-cancel");
closing("why", "why-cancel");
closing("history", "history-close");
closing("details", "details-close");
