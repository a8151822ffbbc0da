"""The script of the page that draws its pictures at the available width."""

DRAW = """
const unpack = table => table.rows.map(row => Object.fromEntries(table.fields.map(
  (field, at) => [field, table.words[at] ? table.words[at][row[at]] : row[at]])));
for (const {datasets} of Object.values(PICTURES))
  for (const rows in datasets) datasets[rows] = unpack(datasets[rows]);

// Where the pictures do not fit, plots and their labels are narrower, panels stand below each
// other, and legends below the picture.
const WIDE = 760, LABELS = 84, BESIDE = 46;
function shrink(node, width) {
  for (const [key, value] of Object.entries(node)) {
    if (key === "width" && value > 100) node.width = width;
    else if (key === "minExtent" || key === "maxExtent") node[key] = LABELS;
    else if (key === "labelLimit") node[key] = LABELS - 6;
    else if (key === "tickCount") node[key] = Math.min(value, 5);
    else if (value && typeof value === "object" && key !== "datasets") shrink(value, width);
  }
}
function narrowed(spec, room) {
  spec = structuredClone(spec);
  if (spec.hconcat) {
    const axis = spec.hconcat[0].layer[0].encoding.y.axis;
    for (const panel of spec.hconcat)
      for (const layer of panel.layer) layer.encoding.y.axis = structuredClone(axis);
    spec.vconcat = spec.hconcat;
    delete spec.hconcat;
  }
  shrink(spec, Math.max(120, room - LABELS - BESIDE));
  Object.assign(spec.config.legend, {orient: "bottom", columns: 2});
  return spec;
}
let drawn = 0;
function draw() {
  const room = document.querySelector(".picture").offsetWidth;
  if (room === drawn) return;
  drawn = room;
  const isNarrow = room < WIDE;
  for (const [name, spec] of Object.entries(PICTURES))
    vegaEmbed("#" + name, isNarrow ? narrowed(spec, room) : structuredClone(spec), {
      mode: "vega-lite", renderer: "canvas", actions: isNarrow ? false :
        {export: true, source: false, compiled: false, editor: false}});
}
draw();
addEventListener("resize", draw);
"""
"""Uses `PICTURES`, the specifications by name, and vegaEmbed."""
