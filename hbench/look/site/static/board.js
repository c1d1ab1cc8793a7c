// The rows of a leaderboard: which are shown, in which order, with which places. It moves the rows that are in the page.
"use strict";

hbench.board = (() => {
  const FORMULA = /^[=+\-@\t\r]/;

  // `standings`: by metric [[place or null, [rows]], …], best first.
  function table(element, standings) {
    const heads = [...element.tHead.rows[0].cells];
    const keys = heads.map((head) => head.dataset.sort);
    const rows = [...element.tBodies[0].rows].sort((a, b) => a.dataset.row - b.dataset.row).map((tr) => ({ tr, cells: [...tr.cells] }));
    const text = (row, key) => { const cell = row.cells[keys.indexOf(key)]; return cell.dataset.text ?? cell.textContent; };
    const value = (row, metric) => { const found = row.cells[keys.indexOf(metric)].dataset.value; return found === undefined ? null : Number(found); };
    const comparable = (row, metric) => value(row, metric) !== null && !row.cells[keys.indexOf(metric)].classList.contains("unranked");
    const metrics = new Set(heads.map((head) => head.dataset.metric).filter(Boolean));

    function visible(row, wanted) {
      const { method, backbone, year, family, source } = wanted;
      if (method && !text(row, "method").toLowerCase().includes(method.toLowerCase())) return false;
      for (const [key, chosen] of Object.entries({ backbone, year, family })) if (chosen && text(row, key) !== chosen) return false;
      if (source === " paper" || source === " run") return row.tr.dataset.kind === source.trim();
      return !source || row.tr.dataset.citation === source;
    }

    function ordered(state) {
      if (metrics.has(state.sort) || state.sort === "place") {
        const best = standings[state.metric].flatMap(([place, own]) => own.map((number) => [rows[number], place]));
        const ranked = best.filter(([, place]) => place !== null), rest = best.filter(([, place]) => place === null);
        return [...(state.down ? ranked : ranked.reverse()), ...rest].map(([row]) => row);
      }
      const sorted = [...rows].sort((a, b) => {
        const [one, two] = [text(a, state.sort), text(b, state.sort)];
        if (!one || !two) return !one - !two;
        return (state.down ? 1 : -1) * one.localeCompare(two, "en", { numeric: true });
      });
      return sorted;
    }

    // Show the rows as the state says, and give those that are visible.
    function show(state) {
      const places = new Map();
      for (const [place, own] of standings[state.metric]) own.forEach((number, at) => places.set(number, [place, at]));
      const order = ordered(state);
      for (const row of rows) {
        const [place, at] = places.get(Number(row.tr.dataset.row)) ?? [null, 0];
        row.cells[0].textContent = place ?? "–";
        row.cells[0].title = at ? "the same result as the row above, printed again" : "";
        row.tr.classList.toggle("reprint", at > 0);
        row.tr.hidden = !visible(row, state);
      }
      heads.forEach((head, at) => {
        const sorted = head.dataset.sort === state.sort;
        if (sorted) head.setAttribute("aria-sort", state.down === (metrics.has(state.sort) && !("lower" in head.dataset)) ? "descending" : "ascending");
        else head.removeAttribute("aria-sort");
        if (head.dataset.metric) {
          const own = head.dataset.metric === state.metric;
          head.classList.toggle("chosen", own);
          for (const row of rows) row.cells[at].classList.toggle("chosen", own);
        }
      });
      // a column that is empty in every visible row goes, but for what the rows are ordered by
      heads.forEach((head, at) => {
        const chosen = [state.sort, state.metric].includes(head.dataset.sort);
        const empty = !chosen && at > 0 && rows.every((row) => row.tr.hidden || !row.cells[at].textContent);
        for (const each of [head, ...rows.map((row) => row.cells[at])]) each.hidden = empty;
      });
      element.tBodies[0].append(...order.map((row) => row.tr));
      return order.filter((row) => !row.tr.hidden);
    }

    // What a spreadsheet opens: the header and the rows, no text of which is taken for a formula.
    function csv(shown) {
      const quoted = (each) => `"${(FORMULA.test(each) ? `'${each}` : each).replaceAll('"', '""')}"`;
      const lines = shown.map((row) => keys.map((key) => text(row, key)));
      return [heads.map((head) => head.textContent.trim()), ...lines].map((line) => line.map(quoted).join(",")).join("\n") + "\n";
    }

    return { show, csv, rows, text, value, comparable, metrics: [...metrics] };
  }

  return { table };
})();
