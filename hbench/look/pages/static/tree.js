// A label tree as an icicle that zooms: a row per level, coarse on top, a node as wide as it has items. Nodes
// narrower than two pixels are drawn together, so a tree of 10,000 leaves is as quick as a small one; a search
// reaches every class.
"use strict";

hbench.tree = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const ROW = 44,
    TALL = 150,
    BELOW = 110,
    LEAST = 2,
    LETTER = 6.6,
    LINE = 15,
    MOST = 30;
  const BRANCHES = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#c8bd3c", "#1b2a49"];
  const OTHER = "#8a8a8a",
    UNKNOWN = "#d6d5d0";

  // Black is read better than white from this luminance on (WCAG: where both have the same contrast).
  const linear = (part) => (part <= 10 ? part / 3294.6 : ((part / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b) > 0.179;
  const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

  // Where each node starts among all items, its parent, and its first child, by level.
  function placed(data) {
    const starts = data.items.map((sizes) => {
      let at = 0;
      return sizes.map((size) => (at += size) - size);
    });
    const parents = [[]],
      firsts = [];
    data.children.forEach((counts, level) => {
      const above = [],
        first = [];
      counts.forEach((count, node) => {
        first.push(above.length);
        for (let n = 0; n < count; n++) above.push(node);
      });
      parents[level + 1] = above;
      firsts[level] = first;
    });
    return { starts, parents, firsts, total: data.items[0].reduce((sum, size) => sum + size, 0) };
  }

  // `parts`: the elements svg, said, path, legend, search (input), options (datalist); `told(level, node)`: a node
  // was chosen.
  function picture(data, parts, told = () => {}) {
    const { svg, said, path, legend, search, options } = parts;
    const { starts, parents, firsts, total } = placed(data);
    const depth = data.levels.length;
    const branches = data.items[0].map((size, node) => [size, node]).sort((a, b) => b[0] - a[0] || a[1] - b[1]);
    const hue = new Map(branches.slice(0, BRANCHES.length).map(([, node], place) => [node, BRANCHES[place]]));
    let root = null,
      cursor = null,
      colors = null,
      high = ROW; // a node is {level, node}; `high`: pixels of a level

    const same = (a, b) => a !== null && b !== null && a.level === b.level && a.node === b.node;
    const up = ({ level, node }) => (level === 0 ? null : { level: level - 1, node: parents[level][node] });
    const down = ({ level, node }) => (level === depth - 1 ? null : { level: level + 1, node: firsts[level][node] });
    const chain = (at) => (at === null ? [] : [...chain(up(at)), at]);
    const name = ({ level, node }) => data.names[level][node];
    const span = (at) => (at === null ? [0, total] : [starts[at.level][at.node], data.items[at.level][at.node]]);

    function fill(at) {
      if (colors) {
        const value = colors.values[at.level][at.node];
        if (value === null) return rgb(UNKNOWN);
        const share = colors.high > colors.low ? (value - colors.low) / (colors.high - colors.low) : 0.5;
        const place = share * (data.colors.length - 1),
          low = Math.min(Math.floor(place), data.colors.length - 2);
        return data.colors[low].map((part, n) => Math.round(part + (data.colors[low + 1][n] - part) * (place - low)));
      }
      const own = rgb(hue.get(chain(at)[0].node) ?? OTHER);
      const pale = (0.6 * at.level) / Math.max(depth - 1, 1) + 0.08 * (at.node % 2);
      return own.map((part) => Math.round(part + (255 - part) * pale));
    }

    function words(at) {
      const value = colors?.values[at.level][at.node];
      const count = data.items[at.level][at.node];
      const scored = colors
        ? `, ${colors.name} ${value === null || value === undefined ? "not known" : read(value)}`
        : "";
      const path = chain(at).map(name).join(" › ");
      const items = `${count.toLocaleString("en")} ${count === 1 ? "item" : "items"}`;
      return `${path} (${data.levels[at.level]}): ${items}${scored}`;
    }

    function made(tag, attributes, text) {
      const element = document.createElementNS(SVG, tag);
      for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
      if (text !== undefined) element.textContent = text;
      return element;
    }

    // What a level draws inside of the root: nodes that are wide enough, and runs of narrow sisters, {from, size, at,
    // run}.
    function pieces(level, from, size, scale) {
      const found = [],
        sizes = data.items[level],
        all = starts[level];
      let low = 0,
        high = all.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (all[middle] + sizes[middle] <= from) low = middle + 1;
        else high = middle;
      }
      for (let node = low; node < all.length && all[node] < from + size; node++) {
        if (!sizes[node]) continue;
        const at = { level, node },
          last = found[found.length - 1],
          parent = parents[level][node];
        const joins = last?.run && last.parent === parent && last.size * scale < LEAST;
        if (sizes[node] * scale >= LEAST) found.push({ at, from: all[node], size: sizes[node] });
        else if (joins) {
          last.run.push(at);
          last.size = all[node] + sizes[node] - last.from;
        } else found.push({ run: [at], parent, from: all[node], size: sizes[node] });
      }
      return found;
    }

    function mean(colors_) {
      return [0, 1, 2].map((part) => Math.round(colors_.reduce((sum, each) => sum + each[part], 0) / colors_.length));
    }

    // A node, or a run of narrow sisters, which stands for their parent.
    function piece({ at, run, parent, from, size }, level, start, scale) {
      const x = (from - start) * scale,
        width = size * scale;
      const color = at ? fill(at) : mean(run.map(fill));
      const shown = at ?? (level ? { level: level - 1, node: parent } : null);
      const rect = made("rect", {
        class: at ? "node" : "node run",
        x: x.toFixed(2),
        y: level * high,
        height: high - 2,
        fill: `rgb(${color.join(" ")})`,
        width: Math.max(width - (width > 4 ? 1 : 0), 0.2).toFixed(2),
      });
      if (shown) rect.dataset.node = `${shown.level}.${shown.node}`;
      if (at && same(at, cursor)) rect.classList.add("cursor");
      const text = at && label(name(at), width, x, level * high);
      if (!text) return [rect];
      text.setAttribute("fill", light(color) ? "#000" : "#fff");
      return [rect, text];
    }

    // A name across a node, or down where it is longer than the node is wide; none where neither shows enough of it.
    function label(words, width, x, y) {
      const [across, down] = [width, high].map((pixels) => Math.floor((pixels - 9) / LETTER));
      const cut = (most) => (words.length <= most ? words : `${words.slice(0, most - 1)}…`);
      if (across >= words.length || (across >= 6 && across >= down))
        return made("text", { x: (x + 5).toFixed(2), y: y + high / 2 + 4 }, cut(across));
      if (width < LINE || down < Math.min(words.length, 6)) return null;
      return made("text", { transform: `translate(${(x + width / 2 - 4).toFixed(2)} ${y + 5}) rotate(90)` }, cut(down));
    }

    function draw() {
      const width = Math.max(svg.clientWidth, 200),
        top = svg.getBoundingClientRect().top + scrollY;
      const free = Math.max(innerHeight - top - BELOW, innerHeight / 2);
      high = Math.floor(Math.max(ROW, Math.min(TALL, free / depth)));
      const [from, size] = span(root);
      const scale = width / Math.max(size, 1);
      const drawn = [];
      let hidden = 0;
      for (let level = 0; level < depth; level++) {
        const above = root !== null && level <= root.level;
        for (const each of above ? [{ at: chain(root)[level], from, size }] : pieces(level, from, size, scale)) {
          hidden += each.run?.length ?? 0;
          drawn.push(...piece(each, level, from, scale));
        }
      }
      svg.setAttribute("viewBox", `0 0 ${width} ${depth * high}`);
      svg.style.height = `${depth * high}px`;
      svg.replaceChildren(...drawn);
      svg.dataset.row = high;
      svg.dataset.root = root ? `${root.level}.${root.node}` : "";
      crumbs(hidden);
    }

    function crumbs(hidden) {
      const steps = [null, ...chain(root)];
      path.replaceChildren(
        ...steps.map((at, n) => {
          const button = document.createElement("button");
          button.type = "button";
          button.textContent = at === null ? "whole tree" : name(at);
          button.disabled = n === steps.length - 1;
          button.addEventListener("click", () => zoom(at));
          return button;
        }),
      );
      if (hidden) {
        const note = document.createElement("span");
        note.textContent = `${hidden.toLocaleString("en")} too narrow to be drawn apart: zoom in`;
        path.append(note);
      }
    }

    function point(at) {
      cursor = at;
      said.textContent = at === null ? "" : words(at);
      svg.querySelector(".cursor")?.classList.remove("cursor");
      if (at !== null)
        svg.querySelector(`.node:not(.run)[data-node="${at.level}.${at.node}"]`)?.classList.add("cursor");
      told(at);
    }

    function zoom(at) {
      root = at;
      cursor = at;
      draw();
      said.textContent = at === null ? "the whole tree" : words(at);
      told(at);
    }

    const nodeOf = (event) => {
      const [level, node] = (event.target.dataset?.node ?? "").split(".").map(Number);
      return event.target.dataset?.node ? { level, node } : null;
    };
    svg.addEventListener("pointermove", (event) => {
      const at = nodeOf(event);
      if (at && !same(at, cursor)) point(at);
    });
    svg.addEventListener("click", (event) => {
      const at = nodeOf(event);
      if (at) zoom(same(at, root) ? up(at) : at);
    });
    svg.addEventListener("keydown", (event) => {
      const at = cursor ?? root ?? { level: 0, node: 0 };
      const beside = (step) =>
        at.node + step >= 0 && at.node + step < data.items[at.level].length
          ? { level: at.level, node: at.node + step }
          : at;
      const inside = (next) =>
        next !== null && (root === null || chain(next)[root.level]?.node === root.node || next.level <= root.level);
      const moves = {
        ArrowLeft: () => beside(-1),
        ArrowRight: () => beside(1),
        ArrowUp: () => up(at) ?? at,
        ArrowDown: () => down(at) ?? at,
      };
      if (moves[event.key]) {
        event.preventDefault();
        const next = cursor === null ? at : moves[event.key]();
        if (!inside(next)) {
          root = up(root);
          draw();
        }
        point(next);
      } else if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        zoom(at);
      } else if ((event.key === "Escape" || event.key === "Backspace") && root !== null) {
        event.preventDefault();
        zoom(up(root));
      }
    });

    const lower = data.names.map((names) => names.map((each) => each.toLowerCase()));
    function found(text) {
      const wanted = text.trim().toLowerCase();
      const matches = [];
      for (let level = 0; wanted && level < depth; level++) {
        for (let node = 0; node < lower[level].length && matches.length < MOST; node++) {
          if (lower[level][node].includes(wanted)) matches.push({ level, node });
        }
      }
      return matches;
    }
    search.addEventListener("input", () => {
      const matches = found(search.value);
      options.replaceChildren(...matches.map((at) => new Option(`${data.levels[at.level]}`, name(at))));
      const exact = matches.find((at) => name(at) === search.value);
      if (exact) zoom(exact);
    });
    search.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      const [first] = found(search.value);
      if (first) zoom(first);
      else said.textContent = "no class of this name";
    });

    // A value as people read it: what the picture is coloured by has the factor.
    const read = (value) => (colors.factor * value).toFixed(1);

    // Colour by the values of a metric, {name, factor, values: by level in drawn order}; null: by coarse branch.
    function color(by) {
      colors = by;
      if (by) {
        const known = by.values.flat().filter((value) => value !== null);
        colors = {
          ...by,
          low: known.reduce((a, b) => Math.min(a, b), Infinity),
          high: known.reduce((a, b) => Math.max(a, b), -Infinity),
        };
      }
      legend.replaceChildren(...(colors && colors.low <= colors.high ? scale() : named()));
      draw();
      if (cursor !== null) said.textContent = words(cursor); // its value may have come after it was chosen
    }

    function swatch(color, text) {
      const item = document.createElement("li");
      const box = made("svg", { class: "box", viewBox: "0 0 10 10", "aria-hidden": "true" });
      box.append(made("rect", { width: 10, height: 10, fill: color }));
      item.append(box, text);
      return item;
    }
    const scale = () =>
      data.colors.map((color, n) =>
        swatch(
          `rgb(${color.join(" ")})`,
          read(colors.low + ((colors.high - colors.low) * n) / (data.colors.length - 1)),
        ),
      );
    const named = () =>
      [...hue]
        .map(([node, color]) => swatch(color, data.names[0][node]))
        .concat(data.names[0].length > hue.size ? [swatch(OTHER, `${data.names[0].length - hue.size} smaller`)] : []);

    new ResizeObserver(draw).observe(svg.parentElement);
    addEventListener("resize", draw);
    color(null);
    return { color, zoom };
  }

  return { picture };
})();
