// The page of a leaderboard: metric, level, filters and order stand in the address, so that a view can be linked.
"use strict";

(async () => {
  const at = (id) => document.getElementById(id);
  const element = at("board"),
    slug = element.dataset.board;
  const about = await hbench.need(`board-${slug}`);
  const table = hbench.board.table(element, about);
  const [metric, level, method] = ["metric", "level", "method"].map(at);
  const filters = [...document.querySelectorAll("[data-filter]")];
  const own = { metric: table.metrics[0], sort: "place", down: true, method: "", columns: "" };
  let state = { ...own };
  let shown = [];

  function read() {
    const words = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
    state = { ...own, method: words.get("method") ?? "", columns: words.get("columns") === "all" ? "all" : "" };
    if (table.metrics.includes(words.get("metric"))) state.metric = words.get("metric");
    if (element.querySelector(`thead [data-sort="${CSS.escape(words.get("sort") ?? "")}"]`))
      state.sort = words.get("sort");
    state.down = words.get("order") !== "reversed";
    for (const each of filters) state[each.dataset.filter] = words.get(each.dataset.filter) ?? "";
  }

  function write() {
    const words = new URLSearchParams();
    for (const [key, value] of Object.entries(state))
      if (key !== "down" && value && value !== own[key]) words.set(key, value);
    if (!state.down) words.set("order", "reversed");
    history.replaceState(null, "", `#${words}`);
  }

  function show() {
    shown = table.show(state);
    const chosen = about.metrics.find((each) => each.key === state.metric);
    const levels = about.metrics.filter((each) => each.family === chosen.family).map((each) => each.level);
    metric.value = chosen.family;
    level.replaceChildren(...levels.map((name) => new Option(name || "whole tree", name)));
    level.value = chosen.level;
    const columns = table.columns();
    at("fold-line").hidden = !columns.many;
    at("fold-said").textContent = columns.many ? `${columns.shown} of ${columns.all} metrics are shown.` : "";
    at("fold").textContent = columns.folded ? `Show all ${columns.all}` : "Show the first only";
    at("fold").setAttribute("aria-expanded", String(!columns.folded));
    at("level-field").hidden = levels.length < 2;
    if (method.value !== state.method) method.value = state.method;
    for (const each of filters) each.value = state[each.dataset.filter] ?? "";
    const ranked = shown.filter((row) => table.comparable(row, state.metric)).length;
    at("count").textContent =
      `${shown.length} of ${table.rows.length} results, ${ranked} of them ranked by ${state.metric}.`;
    const points = chosen.chance ? `±${chosen.chance.toPrecision(2)} points of ${state.metric}` : "";
    at("chance").textContent = points
      ? `Differences below about ${points} may be chance on a test of this many classes; ` +
        "of two files hbench compare says it, query by query."
      : "";
    scatter();
  }

  function change(some) {
    Object.assign(state, some);
    write();
    show();
  }

  // Two metrics: fine AP against H-AP where there are such, else the first two.
  const axes = ["x-metric", "y-metric"].map(at);
  if (axes[0]) {
    const [x, y] = about.axes;
    axes[0].value = x;
    axes[1].value = y;
    for (const each of axes) each.addEventListener("change", scatter);
  }

  function scatter() {
    if (!axes[0]) return;
    const [x, y] = axes.map((each) => each.value);
    const points = shown
      .filter((row) => table.comparable(row, x) && table.comparable(row, y))
      .map((row) => {
        const setup = [table.text(row, "backbone"), table.text(row, "dim")].filter(Boolean).join(", ");
        const scores = `${x} ${table.text(row, x)}${x === y ? "" : `, ${y} ${table.text(row, y)}`}`;
        return {
          x: table.value(row, x),
          y: table.value(row, y),
          kind: about.filters[row.tr.dataset.row].kind[0],
          words: `${table.text(row, "method")}${setup ? ` (${setup})` : ""}: ${scores}; ${table.text(row, "source")}`,
          open: () => {
            const details = row.tr.querySelector("details");
            details.open = true;
            details.scrollIntoView({ block: "center" });
            details.firstElementChild.focus();
          },
        };
      });
    const signs = [x, y].map((key) => (about.metrics.find((each) => each.key === key).lower_is_better ? -1 : 1));
    hbench.scatter.draw(points, [x, y], signs, {
      svg: at("scatter"),
      said: at("scatter-said"),
      count: at("scatter-count"),
      list: at("front"),
    });
  }

  metric.addEventListener("change", () => {
    const all = about.metrics.filter((each) => each.family === metric.value);
    const kept = all.find((each) => each.level === level.value) ?? all[0];
    change({ metric: kept.key, sort: "place", down: true });
  });
  level.addEventListener("change", () => {
    const found = about.metrics.find((each) => each.family === metric.value && each.level === level.value);
    change({ metric: found.key, sort: "place", down: true });
  });
  method.addEventListener("input", () => change({ method: method.value }));
  for (const each of filters) each.addEventListener("change", () => change({ [each.dataset.filter]: each.value }));
  for (const head of element.tHead.rows[0].cells) {
    head.firstElementChild.addEventListener("click", () => {
      const sort = head.dataset.sort;
      change({
        sort,
        down: state.sort === sort ? !state.down : true,
        ...(head.dataset.metric ? { metric: sort } : {}),
      });
    });
  }
  at("fold").addEventListener("click", () => change({ columns: state.columns ? "" : "all" }));
  at("tools").addEventListener("submit", (event) => event.preventDefault());
  at("tools").addEventListener("reset", (event) => {
    event.preventDefault();
    state = { ...own };
    write();
    show();
  });
  at("save").addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([table.csv(shown)], { type: "text/csv" }));
    link.download = `${slug}-${state.metric.replace(/[^A-Za-z0-9-]/g, "-")}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  });
  addEventListener("hashchange", () => {
    if (location.hash.includes("=") || !location.hash) {
      read();
      show();
    }
  });

  read();
  show();
  document.body.dataset.ready = "true";
  if (at("tree-picture")) {
    const parts = {
      svg: at("tree-picture"),
      said: at("tree-said"),
      path: at("tree-path"),
      legend: at("tree-legend"),
      search: at("tree-search"),
      options: at("tree-options"),
    };
    hbench.tree.picture(await hbench.need(`tree-${slug}`), parts);
    at("tree").dataset.ready = "true";
  }
})();
