// The queries in memory: their classes and values as plain arrays, what is in a class, and in which order.
"use strict";

hbench.queries = (() => {
  // `about`: the page's index. `columns`: item, cls (fine class), and per run value, first (level of the first
  // result) and taken (coarsest class of the first result).
  function table(about, columns) {
    const rowOf = new Int32Array(about.items).fill(-1);
    columns.item.forEach((item, row) => {
      rowOf[item] = row;
    });
    const node = (row, level) => about.paths[columns.cls[row]][level];

    // The classes of all levels, coarse first: {level, node, name, queries, mean}, the mean as it is read, that of
    // the first run.
    function classes() {
      return about.names.flatMap((names, level) => {
        const found = names.map((name, number) => ({ level, node: number, name, queries: 0, total: 0, defined: 0 }));
        for (let row = 0; row < columns.item.length; row++) {
          const own = found[node(row, level)];
          own.queries += 1;
          const value = columns.value[0]?.[row];
          if (value !== undefined && value !== null) {
            own.total += value;
            own.defined += 1;
          }
        }
        for (const own of found) own.mean = own.defined ? (about.factor * own.total) / own.defined : null;
        return found.filter((own) => own.queries);
      });
    }

    // The rows of a class (null: all) in an order; rows without a value come last. `taken`, {run, node}: only rows
    // whose first result by this run is of this coarsest class.
    function rows(chosen, order, taken) {
      const found = [];
      for (let row = 0; row < columns.item.length; row++) {
        if (taken && columns.taken[taken.run][row] !== taken.node) continue;
        if (!chosen || node(row, chosen.level) === chosen.node) found.push(row);
      }
      const key = orders[order] ?? orders.file;
      if (!key) return found;
      const keys = new Map(found.map((row) => [row, key(row)]));
      return found.sort((a, b) => keys.get(a) - keys.get(b) || a - b);
    }

    const value = (run, row) => columns.value[run]?.[row] ?? null;
    const last = (number) => (number === null || Number.isNaN(number) ? Infinity : number);
    const negative = (number) => (number === null ? null : -number);
    const goodness = (run, row) => (about.lower_is_better ? negative(value(run, row)) : value(run, row));
    const gain = (row) =>
      value(0, row) === null || value(1, row) === null ? null : goodness(0, row) - goodness(1, row);
    const orders = { file: null };
    const labels = { file: "as in the file" };
    function offer(name, label, key) {
      orders[name] = key;
      labels[name] = label;
    }
    if (columns.value[0]) {
      offer("low", `worst ${about.by}`, (row) => last(goodness(0, row)));
      offer("high", `best ${about.by}`, (row) => last(negative(goodness(0, row))));
    }
    if (columns.first[0]) {
      offer("severe", "most severe first", (row) => columns.first[0][row] + (goodness(0, row) ?? 0) / 2);
    }
    if (columns.value[0] && columns.value[1]) {
      offer("wins", `${about.runs[0].name} better`, (row) => last(negative(gain(row))));
      offer("losses", `${about.runs[1].name} better`, (row) => last(gain(row)));
    }
    return { classes, rows, value, labels, rowOf, columns, node, number: columns.item.length };
  }

  return { table };
})();
