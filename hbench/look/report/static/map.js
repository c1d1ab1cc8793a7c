// The map of the classes: zoom, hover, and a selection that is listed below. Points are strokes of one width, so that
// zooming changes a single transform, however many there are; one path below draws the rims of all.
"use strict";

(async () => {
  const SVG = "http://www.w3.org/2000/svg";
  const RIM = 24,
    NEAR = 14,
    LISTED = 100,
    CLOSEST = 40;
  const GROUPS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#a39a1c", "#1b2a49"],
    OTHER = "#9a9a9a";
  const at = (id) => document.getElementById(id);
  const [svg, said, legend, list] = ["map-picture", "map-said", "map-legend", "map-list"].map(at);
  let about, data, colors;
  try {
    [about, { colors }] = await Promise.all([hbench.need("index"), hbench.need("tree")]);
    data = await hbench.need(`map-${at("map").dataset.run}`);
  } catch (error) {
    said.textContent = error.message;
    return;
  }
  const made = (tag, attributes) => {
    const element = document.createElementNS(SVG, tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  };
  const depth = about.levels.length;
  const path = (n) => about.paths[data.classes[n]].map((node, level) => about.names[level][node]);
  const percent = (value) => (value === null || value === undefined ? "–" : (about.factor * value).toFixed(1));
  function words(n) {
    const items = `${data.items[n].toLocaleString("en")} items`;
    const value = data.value ? `, ${about.by} ${percent(data.value[n])}` : "";
    return `${path(n).join(" › ")}: ${items}${value}`;
  }
  const pictures = (n) => data.pictures[n].map((place) => hbench.strips.picture({ place, id: path(n).at(-1) }));
  const address = (n) => `explore.html#class=${depth - 1}.${data.classes[n]}`;
  const layer = made("g", {}),
    box = made("rect", { class: "box", hidden: "" });
  svg.append(layer, box);
  let points = [],
    view = null,
    chosen = new Set(),
    pointed = null,
    width = 1,
    height = 1;

  // Where a class lies on the picture, in pixels.
  const spot = (n) => [view.x + view.scale * data.x[n], view.y + view.scale * data.y[n]];
  const inView = (n) => {
    const [x, y] = spot(n);
    return x >= 0 && x <= width && y >= 0 && y <= height;
  };

  function all() {
    const right = Math.max(...data.x, 1),
      low = Math.max(...data.y, 1);
    const scale = Math.min((height - 2 * RIM) / low, (width - 2 * RIM) / right);
    move({ scale, x: (width - scale * right) / 2, y: (height - scale * low) / 2, least: scale });
  }
  function move(to) {
    view = { least: view?.least ?? to.scale, ...to };
    layer.setAttribute("transform", `translate(${view.x} ${view.y}) scale(${view.scale})`);
    svg.dataset.scale = (view.scale / view.least).toFixed(3);
  }
  function zoom(factor, x = width / 2, y = height / 2) {
    const scale = Math.min(Math.max(view.scale * factor, view.least), view.least * CLOSEST),
      by = scale / view.scale;
    move({ ...view, scale, x: x - by * (x - view.x), y: y - by * (y - view.y) });
  }
  const pan = (dx, dy) => move({ ...view, x: view.x + dx, y: view.y + dy });

  function draw() {
    points = data.classes.map((_, n) => made("path", { class: "dot", d: `M${data.x[n]} ${data.y[n]}h0` }));
    const rim = made("path", { class: "rim", d: data.classes.map((_, n) => `M${data.x[n]} ${data.y[n]}h0`).join("") });
    layer.replaceChildren(rim, ...points);
    chosen = new Set();
    paint();
    all();
    show();
    at("map-options").replaceChildren(...data.classes.map((node) => new Option("", about.names[depth - 1][node])));
  }

  function paint() {
    const by = at("map-color").value;
    const entries = [];
    if (by === "value") {
      const known = data.value.filter((value) => value !== null);
      const low = Math.min(...known),
        high = Math.max(...known);
      const color = (value) => {
        const place = (high > low ? (value - low) / (high - low) : 0.5) * (colors.length - 1),
          left = Math.min(Math.floor(place), colors.length - 2);
        const mixed = colors[left].map((part, n) => Math.round(part + (colors[left + 1][n] - part) * (place - left)));
        return `rgb(${mixed.join(" ")})`;
      };
      points.forEach((point, n) => point.setAttribute("stroke", data.value[n] === null ? OTHER : color(data.value[n])));
      for (let n = 0; n < colors.length; n++) {
        const value = low + ((high - low) * n) / (colors.length - 1);
        entries.push([color(value), percent(value)]);
      }
    } else {
      const level = Number(by),
        group = data.classes.map((node) => about.paths[node][level]);
      const sizes = new Map();
      for (const each of group) sizes.set(each, (sizes.get(each) ?? 0) + 1);
      const largest = [...sizes]
        .sort((a, b) => b[1] - a[1] || a[0] - b[0])
        .slice(0, GROUPS.length)
        .map(([node]) => node);
      points.forEach((point, n) => point.setAttribute("stroke", GROUPS[largest.indexOf(group[n])] ?? OTHER));
      largest.forEach((node, n) => entries.push([GROUPS[n], about.names[level][node]]));
      if (sizes.size > largest.length) entries.push([OTHER, `${sizes.size - largest.length} smaller`]);
    }
    at("map-colored").textContent =
      by === "value"
        ? `Colour: ${about.by}, the mean of the queries of a class`
        : `Colour: ${about.levels[Number(by)]}`;
    legend.replaceChildren(
      ...entries.map(([color, text]) => {
        const item = document.createElement("li"),
          swatch = made("svg", { class: "box", viewBox: "0 0 10 10", "aria-hidden": "true" });
        swatch.append(made("rect", { width: 10, height: 10, fill: color }));
        item.append(swatch, text);
        return item;
      }),
    );
  }

  function point(n) {
    if (pointed !== null) points[pointed]?.classList.remove("pointed");
    pointed = n;
    if (n === null) return;
    points[n].classList.add("pointed");
    said.textContent = words(n);
    at("map-shown").replaceChildren(
      ...pictures(n).map((picture) => {
        const frame = hbench.strips.element("div", "frame");
        frame.append(picture);
        return frame;
      }),
    );
  }

  function choose(some) {
    for (const n of some) chosen.add(n);
    show();
  }

  // The list of what is selected, worst value first.
  function show() {
    points.forEach((each, n) => each.classList.toggle("chosen", chosen.has(n)));
    const sign = about.lower_is_better ? -1 : 1;
    const key = (n) => ((data.value?.[n] ?? null) === null ? Infinity : sign * data.value[n]);
    const sorted = [...chosen].sort((a, b) => key(a) - key(b) || a - b);
    at("map-count").textContent = sorted.length.toLocaleString("en");
    list.replaceChildren(
      ...sorted.slice(0, LISTED).map((n) => {
        const row = document.createElement("tr"),
          head = document.createElement("th"),
          link = document.createElement("a");
        const kin = document.createElement("span"),
          value = document.createElement("td"),
          items = document.createElement("td");
        const names = path(n);
        kin.className = "kin";
        kin.textContent = names
          .slice(0, -1)
          .map((name) => `${name} › `)
          .join("");
        link.href = address(n);
        link.append(names[depth - 1], ...pictures(n));
        head.scope = "row";
        head.append(kin, link);
        value.textContent = percent(data.value?.[n]);
        items.textContent = data.items[n].toLocaleString("en");
        row.dataset.class = data.classes[n];
        row.append(head, value, items);
        return row;
      }),
    );
    if (sorted.length > LISTED) {
      const row = list.insertRow(),
        cell = row.insertCell();
      cell.colSpan = 3;
      cell.textContent = `${(sorted.length - LISTED).toLocaleString("en")} more`;
    }
  }

  // The pointer, in pixels of the picture; the class nearest to it, if any is near.
  function place(event) {
    const frame = svg.getBoundingClientRect();
    return [event.clientX - frame.left, event.clientY - frame.top];
  }
  function nearest(x, y, most) {
    let best = null,
      least = most ** 2;
    data.classes.forEach((_, n) => {
      const [a, b] = spot(n),
        far = (a - x) ** 2 + (b - y) ** 2;
      if (far < least) {
        least = far;
        best = n;
      }
    });
    return best;
  }
  let drag = null;
  svg.addEventListener("pointerdown", (event) => {
    const [x, y] = place(event);
    drag = {
      x,
      y,
      from: [x, y],
      moved: false,
      boxes: event.shiftKey || at("select-box").getAttribute("aria-pressed") === "true",
    };
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointermove", (event) => {
    const [x, y] = place(event);
    if (!drag) return point(nearest(x, y, NEAR));
    drag.moved ||= Math.hypot(x - drag.from[0], y - drag.from[1]) > 4;
    if (!drag.moved) return;
    if (drag.boxes) {
      box.removeAttribute("hidden");
      for (const [key, value] of Object.entries(extent(drag.from, [x, y]))) box.setAttribute(key, value);
    } else pan(x - drag.x, y - drag.y);
    Object.assign(drag, { x, y });
  });
  const extent = ([a, b], [c, d]) => ({
    x: Math.min(a, c),
    y: Math.min(b, d),
    width: Math.abs(a - c),
    height: Math.abs(b - d),
  });
  svg.addEventListener("pointerup", (event) => {
    const [x, y] = place(event);
    if (drag?.moved && drag.boxes) {
      const { x: left, y: top, width, height } = extent(drag.from, [x, y]);
      choose(
        data.classes
          .map((_, n) => n)
          .filter((n) => {
            const [a, b] = spot(n);
            return a >= left && a <= left + width && b >= top && b <= top + height;
          }),
      );
    } else if (drag && !drag.moved) {
      const n = nearest(x, y, NEAR);
      if (n !== null) {
        point(n);
        if (chosen.has(n)) {
          chosen.delete(n);
          show();
        } else choose([n]);
      }
    }
    box.setAttribute("hidden", "");
    drag = null;
  });
  svg.addEventListener("dblclick", (event) => {
    const n = nearest(...place(event), NEAR);
    if (n !== null) location.href = address(n);
  });
  svg.addEventListener("pointercancel", () => {
    drag = null;
    box.setAttribute("hidden", "");
  });
  svg.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const [x, y] = place(event);
      zoom(Math.exp(-event.deltaY / 400), x, y);
    },
    { passive: false },
  );
  svg.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
    if (moves[event.key]) pan(...moves[event.key]);
    else if (event.key === "+" || event.key === "=") zoom(1.5);
    else if (event.key === "-") zoom(1 / 1.5);
    else if (event.key === "0") all();
    else return;
    event.preventDefault();
  });
  at("zoom-in").addEventListener("click", () => zoom(1.5));
  at("zoom-out").addEventListener("click", () => zoom(1 / 1.5));
  at("zoom-all").addEventListener("click", all);
  at("select-box").addEventListener("click", (event) =>
    event.target.setAttribute("aria-pressed", String(event.target.getAttribute("aria-pressed") !== "true")),
  );
  at("select-view").addEventListener("click", () => choose(data.classes.map((_, n) => n).filter(inView)));
  at("select-none").addEventListener("click", () => {
    chosen.clear();
    show();
  });
  at("map-search").addEventListener("change", (event) => {
    const wanted = event.target.value.trim().toLowerCase();
    const n = wanted ? data.classes.findIndex((node) => about.names[depth - 1][node].toLowerCase() === wanted) : -1;
    if (n < 0) {
      said.textContent = wanted ? "no class of this name is on the map" : "";
      return;
    }
    const scale = view.least * 6;
    move({ ...view, scale, x: width / 2 - scale * data.x[n], y: height / 2 - scale * data.y[n] });
    point(n);
    choose([n]);
  });
  const color = at("map-color");
  about.levels.slice(0, Math.max(depth - 1, 1)).forEach((name, level) => color.append(new Option(`by ${name}`, level)));
  if (data.value) color.append(new Option(about.by, "value"));
  // a level at which all classes are one group tells nothing
  const groups = (level) => new Set(data.classes.map((node) => about.paths[node][level])).size;
  color.selectedIndex = Math.max(
    0,
    [...color.options].findIndex((option) => option.value === "value" || groups(Number(option.value)) > 1),
  );
  color.addEventListener("change", paint);
  at("map-run")?.addEventListener("change", async (event) => {
    try {
      data = await hbench.need(`map-${event.target.value}`);
      view = null;
      pointed = null;
      draw();
    } catch (error) {
      said.textContent = error.message;
    }
  });
  function fit() {
    if (svg.clientWidth === width && svg.clientHeight === height) return;
    [width, height] = [svg.clientWidth, svg.clientHeight];
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    if (view) all();
  }
  fit();
  new ResizeObserver(fit).observe(svg);
  draw();
  at("map").dataset.ready = "true";
})();
