// Loads data from scripts beside the page: a file that was opened from a disk may not fetch, but may load scripts.
// Each of them calls hbench.put(name, value); hbench.need(name) promises the value.
"use strict";

window.hbench = (() => {
  const values = new Map();
  const waiting = new Map();

  function put(name, value) {
    values.set(name, value);
    waiting.get(name)?.resolve(value);
    waiting.delete(name);
  }

  function need(name) {
    if (values.has(name)) return Promise.resolve(values.get(name));
    if (waiting.has(name)) return waiting.get(name).promise;
    const entry = {};
    entry.promise = new Promise((resolve, reject) => Object.assign(entry, { resolve, reject }));
    waiting.set(name, entry);
    const script = document.createElement("script");
    script.src = `data/${name}.js`;
    script.onload = () => script.remove();
    script.onerror = () => {
      waiting.delete(name);
      entry.reject(new Error(`data/${name}.js is missing from this folder`));
    };
    document.head.append(script);
    return entry.promise;
  }

  // Row `number` of a table that is cut into scripts of `size` rows.
  async function row(table, number, size) {
    const rows = await need(`${table}-${Math.floor(number / size)}`);
    return rows[number % size];
  }

  return { put, need, row };
})();
