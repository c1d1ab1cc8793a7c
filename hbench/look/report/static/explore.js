// The explorer: which class, which order and which query are shown stands in the address, so that back and links work.
"use strict";

(async () => {
  const shown = document.getElementById("shown");
  const fail = (error) => {
    shown.textContent = error.message;
    shown.setAttribute("aria-busy", "false");
  };
  let about, queries;
  try {
    [about, queries] = await Promise.all([hbench.need("index"), hbench.need("queries")]);
  } catch (error) {
    return fail(error);
  }
  const table = hbench.queries.table(about, queries);
  const classes = table.classes();
  const order = document.getElementById("order");
  const place = document.getElementById("place");
  const said = document.getElementById("said");
  const filter = document.getElementById("filter");
  const [previous, next] = ["previous", "next"].map((id) => document.getElementById(id));
  for (const [name, label] of Object.entries(table.labels)) order.append(new Option(label, name));
  const search = hbench.search.field(
    document.getElementById("search"),
    document.getElementById("matches"),
    classes,
    about.levels,
    (chosen) => go({ chosen, taken: null, row: null }),
  );
  let state = { chosen: null, taken: null, order: table.labels.severe ? "severe" : "file", rows: [], at: 0 };
  let drawing = 0;

  // The address: #class=LEVEL.NODE&taken=RUN.NODE&order=NAME&item=POSITION
  function read() {
    const words = new URLSearchParams(location.hash.slice(1));
    const [level, node] = (words.get("class") ?? "").split(".").map(Number);
    const chosen = classes.find((each) => each.level === level && each.node === node) ?? null;
    const named = words.get("order");
    const sorted = Object.hasOwn(table.labels, named ?? "") ? named : state.order;
    const [run, first] = (words.get("taken") ?? "").split(".").map(Number);
    let taken = queries.taken[run] && about.names[0][first] !== undefined ? { run, node: first } : null;
    const same =
      chosen === state.chosen &&
      sorted === state.order &&
      JSON.stringify(taken) === JSON.stringify(state.taken) &&
      state.rows.length;
    let rows = same ? state.rows : table.rows(chosen, sorted, taken);
    if (!rows.length) [rows, taken] = [table.rows(chosen, sorted), null];
    const row = table.rowOf[Number(words.get("item") ?? -1)] ?? -1;
    state = { chosen, taken, order: sorted, rows, at: Math.max(0, rows.indexOf(row)) };
    search.show(chosen);
    filter.hidden = !taken;
    if (taken) {
      const by = about.runs.length > 1 ? ` by ${about.runs[taken.run].name}` : "";
      const kind = about.names[0][taken.node];
      filter.firstElementChild.textContent = `Only queries whose first result${by} is of ${kind}.`;
    }
    order.value = sorted;
    draw();
  }

  function go({ chosen = state.chosen, taken = state.taken, sorted = state.order, row = null }) {
    const words = new URLSearchParams();
    if (chosen) words.set("class", `${chosen.level}.${chosen.node}`);
    if (taken) words.set("taken", `${taken.run}.${taken.node}`);
    words.set("order", sorted);
    if (row !== null) words.set("item", queries.item[row]);
    if (`#${words}` !== location.hash) location.hash = words;
    else read();
  }

  // Steps replace the address: the back key leaves a walk through many queries at once.
  function step(at) {
    if (at < 0 || at >= state.rows.length) return;
    state.at = at;
    const words = new URLSearchParams(location.hash.slice(1));
    words.set("order", state.order);
    words.set("item", queries.item[state.rows[at]]);
    history.replaceState(null, "", `#${words}`);
    draw();
  }

  const item = (number) =>
    hbench
      .row("items", number, about.item_chunk)
      .then(([id, cls, at, more = []]) => ({ id, classes: [cls, ...more], place: at }));
  const path = (cls) => about.paths[cls].map((node, level) => about.names[level][node]);

  // Of an item with several paths the one that it shares with the query, as far as one is shared.
  function sharedClass(one, query) {
    const level = (a, b) => about.paths[a].findIndex((node, at) => node !== about.paths[b][at]);
    const shared = (cls) =>
      Math.max(...query.classes.map((own) => (own === cls ? about.levels.length : level(cls, own))));
    return one.classes.reduce((best, cls) => (shared(cls) > shared(best) ? cls : best));
  }

  async function resultsOf(run, row) {
    if (!about.runs[run].kept) return null;
    const [first, similarities, shared, copies, late, right, score] = await hbench.row(
      `run${run}`,
      row,
      about.query_chunk,
    );
    const [ranks, items, scores, levels] = [first.map((_, n) => n + 1), [...first], [...similarities], [...shared]];
    if (late) {
      ranks.push(late);
      items.push(right);
      scores.push(score);
      levels.push(about.levels.length);
    }
    const [query, ...found] = await Promise.all([item(queries.item[row]), ...items.map(item)]);
    return found.map((each, n) => {
      const asks = table.rowOf[items[n]];
      const inClass = !state.chosen || (asks >= 0 && table.node(asks, state.chosen.level) === state.chosen.node);
      const ask = asks < 0 ? null : () => go({ chosen: inClass ? state.chosen : null, taken: null, row: asks });
      const result = {
        item: each,
        level: levels[n],
        score: scores[n],
        path: path(sharedClass(each, query)),
        copy: n < copies,
        late: late > 0 && n === items.length - 1,
      };
      return hbench.strips.tile(result, ranks[n], about, ask);
    });
  }

  async function draw() {
    const turn = ++drawing;
    const row = state.rows[state.at];
    place.textContent = `${(state.at + 1).toLocaleString("en")} of ${state.rows.length.toLocaleString("en")}`;
    previous.disabled = state.at === 0;
    next.disabled = state.at >= state.rows.length - 1;
    try {
      const [own, ...found] = await Promise.all([
        item(queries.item[row]),
        ...about.runs.map((_, run) => resultsOf(run, row)),
      ]);
      if (turn !== drawing) return; // a later key was quicker
      const query = { item: own, path: path(own.classes[0]), more: own.classes.slice(1).map(path) };
      const rows = about.runs.map((run, n) => hbench.strips.row(run, n, found[n], table.value(n, row), about));
      const sides = hbench.strips.element("div", rows.length > 1 ? "sides" : "");
      sides.append(...rows);
      shown.replaceChildren(hbench.strips.heading(query, about), sides);
      shown.dataset.query = own.id;
      shown.setAttribute("aria-busy", "false");
      said.textContent = `Query ${place.textContent}: ${own.id}, ${query.path.join(", ")}`;
    } catch (error) {
      fail(error);
    }
  }

  order.addEventListener("change", () => go({ sorted: order.value }));
  filter.lastElementChild.addEventListener("click", () => go({ taken: null }));
  previous.addEventListener("click", () => step(state.at - 1));
  next.addEventListener("click", () => step(state.at + 1));
  document.getElementById("tools").addEventListener("submit", (event) => event.preventDefault());
  addEventListener("hashchange", read);
  addEventListener("keydown", (event) => {
    const typing = event.target.matches?.("input, select, textarea");
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const to = { ArrowLeft: state.at - 1, ArrowRight: state.at + 1, Home: 0, End: state.rows.length - 1 }[event.key];
    if (to !== undefined) {
      event.preventDefault();
      step(to);
    }
    if (event.key === "/") {
      event.preventDefault();
      document.getElementById("search").focus();
    }
  });
  read();
})();
