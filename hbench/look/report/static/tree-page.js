// The tree of a report, coloured by the values of a metric, which are loaded when they are asked for.
"use strict";

(async () => {
  const at = (id) => document.getElementById(id);
  const parts = {
    svg: at("tree-picture"),
    said: at("tree-said"),
    path: at("tree-path"),
    legend: at("tree-legend"),
    search: at("tree-search"),
    options: at("tree-options"),
  };
  let data;
  try {
    data = await hbench.need("tree");
  } catch (error) {
    parts.said.textContent = error.message;
    return;
  }
  const link = at("tree-explore"),
    metric = at("tree-color"),
    run = at("tree-run");
  const picture = hbench.tree.picture(data, parts, (node) => {
    link.hidden = node === null;
    if (node !== null) link.href = `explore.html#class=${node.level}.${data.nodes[node.level][node.node]}`;
  });
  async function color() {
    const place = data.metrics.indexOf(metric.value);
    if (place < 0) return picture.color(null);
    try {
      const values = await hbench.need(`tree-${run ? run.value : at("tree").dataset.run}-${place}`);
      picture.color({ name: metric.value, factor: data.factors[place], values });
    } catch (error) {
      parts.said.textContent = error.message;
    }
  }
  for (const each of [metric, run]) each?.addEventListener("change", color);
  if (metric) {
    metric.value = data.metrics[0];
    await color();
  }
  at("tree").dataset.ready = "true";
})();
