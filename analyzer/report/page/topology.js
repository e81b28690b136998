// Topology.
const strip = $('strip');
if (strip && data.layers.length && rows && data.layers[0].ratio) topology();
function topology() {
  const canvas = strip.querySelector('canvas'), layer = data.layers[0];
  let cells = [];
  function paint() {
    if (!strip.clientWidth) return;
    const width = strip.clientWidth, stops = ramps.ratio[isDark() ? 'dark' : 'light'];
    cells = stages > 1 ? byStage(width) : byNode(width);
    const bottom = cells.reduce((b, c) => Math.max(b, c.y + c.h), 0) + 4;
    const g = fit(canvas, width, bottom);
    for (const c of cells) {
      if (c.text) { g.fillStyle = css('--muted'); g.textAlign = 'left'; g.textBaseline = 'middle'; g.fillText(c.text, c.x, c.y + c.h / 2, c.w); continue; }
      const m = data.medians[c.i];
      g.fillStyle = m > 0 ? hex(pack(colourAt(stops, position(layer, Math.log(m))))) : ramps.none[isDark() ? 'dark' : 'light'];
      g.fillRect(c.x, c.y, c.w, c.h);
    }
    for (const c of cells) {
      const mark = culprit.get(c.i);
      if (!mark || c.text) continue;
      const grow = c.w < 8 ? 2 : 0;
      g.strokeStyle = css(mark.state === 'suspect' ? '--warn' : mark.state === 'recovered' ? '--good' : '--bad'); g.lineWidth = 2;
      g.strokeRect(c.x - 1 - grow, c.y - 1 - grow, c.w + 2 + 2 * grow, c.h + 2 + 2 * grow);
    }
  }
  // Rows are stages, columns replicas; a replica's ranks of one stage stand side by side.
  function byStage(width) {
    const of = Array.from({ length: stages }, () => []), out = [], label = 62;
    data.ranks.forEach((_, i) => { if (data.stage[i] >= 0) of[data.stage[i]].push(i); });
    const most = Math.max(1, ...of.map(s => s.length)), room = width - label - 4;
    const fitting = Math.max(3, Math.min(34, Math.floor(room / most))), wrap = Math.max(1, Math.floor(room / fitting));
    let y = 4;
    for (let s = 0; s < stages; s++) {
      const lines = Math.ceil(of[s].length / wrap), h = lines > 1 ? fitting : Math.max(fitting, 14);
      out.push({ text: 'stage ' + s, x: 0, y, w: label - 8, h: Math.min(h * lines, 16) });
      of[s].forEach((i, k) => {
        const gap = fitting > 5 ? 1.5 : fitting > 3 ? 1 : .5;
        out.push({ i, x: label + k % wrap * fitting, y: y + Math.floor(k / wrap) * h, w: fitting - gap, h: h - gap });
      });
      y += lines * h + (lines > 1 ? 6 : 3);
    }
    return out;
  }
  // Without stages: nodes as boxes of their ranks.
  function byNode(width) {
    const of = data.nodes.map(() => []), out = [];
    data.ranks.forEach((_, i) => of[data.node[i]].push(i));
    const perNode = Math.max(1, ...of.map(n => n.length)), across = Math.min(perNode, 8), down = Math.ceil(perNode / across);
    let size = 26;
    for (; size > 3; size--) {
      const perLine = Math.max(1, Math.floor((width + 6) / (across * size + 6)));
      if (Math.ceil(of.length / perLine) * (down * size + (size > 12 ? 22 : 6)) <= 300) break;
    }
    const perLine = Math.max(1, Math.floor((width + 6) / (across * size + 6))), named = size > 12, gap = size > 5 ? 1.5 : .5;
    of.forEach((ranks, n) => {
      const x = n % perLine * (across * size + 6) + 2, y = Math.floor(n / perLine) * (down * size + (named ? 22 : 6)) + 2;
      if (named) out.push({ text: data.nodes[n], x, y, w: across * size, h: 14 });
      ranks.forEach((i, k) => out.push({ i, x: x + k % across * size, y: y + (named ? 15 : 0) + Math.floor(k / across) * size, w: size - gap, h: size - gap }));
    });
    return out;
  }
  canvas.addEventListener('pointermove', e => {
    const b = canvas.getBoundingClientRect(), x = e.clientX - b.left, y = e.clientY - b.top;
    const c = cells.find(c => !c.text && x >= c.x - 1 && x < c.x + c.w + 1 && y >= c.y - 1 && y < c.y + c.h + 1);
    if (!c) return hideTip();
    const mark = culprit.get(c.i);
    showTip(e.clientX, e.clientY, [
      [data.medians[c.i] > 0 ? fmtTimes(data.medians[c.i]) : 'not measured', 'big'],
      ['rank ' + data.ranks[c.i] + ' on ' + data.nodes[data.node[c.i]]], [place(c.i), 'dim'], [mark ? 'named by the verdict: ' + mark.state : ''],
    ]);
  });
  canvas.addEventListener('pointerleave', hideTip);
  redraws.push(paint);
  paint();
}
