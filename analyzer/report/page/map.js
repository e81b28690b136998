// Layers.
const columns = data.from.length, rows = data.ranks.length;
for (const layer of data.layers) {
  const packed = Uint8Array.from(atob(layer.data), c => c.charCodeAt(0));
  const cells = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate-raw'));
  layer.cells = new Uint8Array(await new Response(cells).arrayBuffer());
  layer.data = null;
  // The ramp ends where the strongest rank is, within reason, so that a 5 % fault
  // shows and noise does not.
  const level = layer.levels, deviations = [];
  for (let i = 0, step = Math.max(1, Math.floor(layer.cells.length / 20000)); i < layer.cells.length; i += step) if (layer.cells[i]) deviations.push(Math.abs(level[layer.cells[i]]));
  deviations.sort((a, b) => a - b);
  const q = p => deviations.length ? deviations[Math.min(deviations.length - 1, Math.floor(p * deviations.length))] : 0;
  layer.noise = 1.4826 * q(.5);
  if (layer.ratio) {
    let most = 0;
    if (layer === data.layers[0]) for (const m of data.medians) if (m > 0) most = Math.max(most, Math.abs(Math.log(m)));
    layer.reach = Math.min(Math.log(4), Math.max(Math.log(1.15), most * 1.05, 5 * layer.noise));
  } else layer.reach = Math.max(.05, q(.999));
}

// Heat map.
const map = $('map');
if (map && data.layers.length && rows && columns) heatMap();
function heatMap() {
  const canvas = map.querySelector('canvas'), base = document.createElement('canvas');
  const byNode = [...data.ranks.keys()].sort((a, b) => data.node[a] - data.node[b] || data.ranks[a] - data.ranks[b]);
  const nodeNames = data.nodes, orders = { role: [...data.ranks.keys()], node: byNode };
  // Nodes sort by name with numbers as numbers.
  const collate = new Intl.Collator('en', { numeric: true }), rankOfNode = [];
  [...nodeNames.keys()].sort((a, b) => collate.compare(nodeNames[a], nodeNames[b])).forEach((n, i) => { rankOfNode[n] = i; });
  byNode.sort((a, b) => rankOfNode[data.node[a]] - rankOfNode[data.node[b]] || data.ranks[a] - data.ranks[b]);
  let layer = data.layers[0], lut = palette(layer), order = stages > 1 ? orders.role : orders.node;
  const full = () => ({ r0: 0, r1: rows, c0: 0, c1: columns });
  let view = full(), drag = null, cursor = null;
  const left = 86, right = 74, top = 46, bottom = 34;
  let plot = { x: left, y: top, w: 0, h: 0 };

  const height = n => Math.round(Math.max(120, Math.min(620, n * (n <= 16 ? 26 : n <= 40 ? 14 : n <= 80 ? 8 : 4))));
  // value of a block of cells: the mean, or the rank that stands out of its noise,
  // so that one slow rank of thousands keeps its pixel.
  function block(ra, rb, ca, cb) {
    let sum = 0, n = 0, extreme = 0;
    for (let r = ra; r < rb; r++) {
      let own = 0, k = 0;
      const base = order[r] * columns;
      for (let c = ca; c < cb; c++) { const code = layer.cells[base + c]; if (code) { own += layer.levels[code]; k++; } }
      if (!k) continue;
      sum += own; n += k;
      own /= k;
      if (Math.abs(own) > Math.abs(extreme)) extreme = own;
    }
    if (!n) return NaN;
    const mean = sum / n;
    return layer.ratio && rb - ra > 1 && Math.abs(extreme) > Math.max(.04, 5 * layer.noise / Math.sqrt(cb - ca)) ? extreme : mean;
  }
  function shade(value) {
    if (Number.isNaN(value)) return lut[0];
    const stops = ramps[layer.ratio ? 'ratio' : 'share'][isDark() ? 'dark' : 'light'];
    const key = Math.round(255 * position(layer, value));
    return shades[key] ??= pack(colourAt(stops, key / 255));
  }
  let shades = [];

  function paint() {
    if (!map.clientWidth) return; // not laid out
    lut = palette(layer); shades = [];
    const width = map.clientWidth, nr = view.r1 - view.r0, nc = view.c1 - view.c0;
    const h = height(rows);
    plot = { x: left, y: top, w: Math.max(60, width - left - right), h };
    const g = fit(base, width, top + h + bottom), scale = base.width / width;
    const pw = Math.min(nc, Math.max(1, Math.round(plot.w * scale))), ph = Math.min(nr, Math.max(1, Math.round(plot.h * scale)));
    const image = new ImageData(pw, ph), px = new Uint32Array(image.data.buffer);
    for (let y = 0; y < ph; y++) {
      const ra = view.r0 + Math.floor(y * nr / ph), rb = Math.max(ra + 1, view.r0 + Math.floor((y + 1) * nr / ph));
      for (let x = 0; x < pw; x++) {
        const ca = view.c0 + Math.floor(x * nc / pw), cb = Math.max(ca + 1, view.c0 + Math.floor((x + 1) * nc / pw));
        px[y * pw + x] = rb - ra === 1 && cb - ca === 1 ? lut[layer.cells[order[ra] * columns + ca]] : shade(block(ra, rb, ca, cb));
      }
    }
    const off = document.createElement('canvas');
    off.width = pw; off.height = ph;
    off.getContext('2d').putImageData(image, 0, 0);
    g.imageSmoothingEnabled = false;
    g.drawImage(off, plot.x, plot.y, plot.w, plot.h);
    lines(g, nr, nc);
    rankAxis(g, nr); stepAxis(g, nc); timeStrip(g, nc); medianBars(g, nr); marks(g, nr, nc);
    legend();
    fit(canvas, width, top + h + bottom);
    overlay();
  }
  // Thin gaps between cells where cells are large.
  function lines(g, nr, nc) {
    g.fillStyle = css('--card');
    if (plot.h / nr >= 7) for (let r = 1; r < nr; r++) g.fillRect(plot.x, plot.y + r * plot.h / nr - .5, plot.w, 1);
    if (plot.w / nc >= 9) for (let c = 1; c < nc; c++) g.fillRect(plot.x + c * plot.w / nc - .5, plot.y, 1, plot.h);
  }
  const rowY = r => plot.y + (r - view.r0) * plot.h / (view.r1 - view.r0);
  const colX = c => plot.x + (c - view.c0) * plot.w / (view.c1 - view.c0);

  // Left: single ranks where there is room, else stages or nodes.
  function rankAxis(g, nr) {
    const step = plot.h / nr;
    g.textBaseline = 'middle'; g.textAlign = 'right';
    g.fillStyle = css('--muted');
    if (step >= 11) {
      for (let r = view.r0; r < view.r1; r++) {
        const i = order[r];
        if (culprit.has(i)) continue;
        g.fillText('rank ' + data.ranks[i], plot.x - 12, rowY(r + .5));
      }
      return;
    }
    const role = order === orders.role && stages > 1;
    const word = i => role ? 'stage ' + data.stage[i] : nodeNames[data.node[i]];
    const taken = marked().map(r => rowY(r + .5));
    let start = view.r0, lastY = -99;
    for (let r = view.r0 + 1; r <= view.r1; r++) {
      const same = r < view.r1 && (role ? data.stage[order[r]] === data.stage[order[start]] : data.node[order[r]] === data.node[order[start]]);
      if (same) continue;
      const y0 = rowY(start), y1 = rowY(r), y = (y0 + y1) / 2;
      if (y - lastY >= 13 && !taken.some(t => Math.abs(t - y) < 12)) { g.fillText(cut(g, word(order[start]), left - 16), plot.x - 12, y); lastY = y; }
      if ((y1 - y0 >= 12 || role) && r < view.r1) { g.fillStyle = css('--card'); g.fillRect(plot.x, y1 - .5, plot.w, role ? 1.5 : 1); g.fillStyle = css('--muted'); }
      start = r;
    }
  }
  function cut(g, text, width) {
    if (g.measureText(text).width <= width) return text;
    while (text.length > 1 && g.measureText(text + '…').width > width) text = text.slice(0, -1);
    return text + '…';
  }
  const rowsOfCulprits = () => { const at = []; order.forEach((i, r) => { if (culprit.has(i)) at.push(r); }); return at; };
  const marked = () => rowsOfCulprits().filter(r => r >= view.r0 && r < view.r1);
  const stateColour = s => css(s === 'suspect' ? '--warn' : s === 'recovered' ? '--good' : '--bad');

  function marks(g, nr, nc) {
    let lastY = -99;
    g.textBaseline = 'middle'; g.textAlign = 'right';
    for (const r of marked()) {
      const i = order[r], c = culprit.get(i), y = rowY(r + .5), half = Math.max(1.5, plot.h / nr / 2);
      g.fillStyle = g.strokeStyle = stateColour(c.state);
      g.beginPath(); g.moveTo(plot.x - 9, y - 4); g.lineTo(plot.x - 2, y); g.lineTo(plot.x - 9, y + 4); g.fill();
      if (y - lastY >= 13) { g.font = '600 ' + g.font.replace(/^(600 )?/, ''); g.fillText('rank ' + data.ranks[i], plot.x - 13, y); g.font = g.font.replace(/^600 /, ''); lastY = y; }
      g.lineWidth = 1.5;
      g.strokeRect(plot.x - .5, y - half, plot.w + 1, 2 * half);
      if (c.since >= view.c0 && c.since < view.c1 && c.since > 0) {
        const x = colX(c.since);
        g.fillRect(x - 1, y - Math.max(half, 7), 2, 2 * Math.max(half, 7));
      }
    }
  }
  function stepAxis(g, nc) {
    g.fillStyle = css('--muted'); g.textAlign = 'center'; g.textBaseline = 'top';
    for (const [c, label] of stepTicks(data.from.slice(view.c0, view.c1), data.to.slice(view.c0, view.c1), plot.w / nc, 72)) {
      const x = colX(view.c0 + c + .5);
      g.fillRect(x - .5, plot.y + plot.h + 3, 1, 4);
      g.fillText(label, x, plot.y + plot.h + 10);
    }
    g.textAlign = 'right';
    g.fillText('step', plot.x - 12, plot.y + plot.h + 10);
  }
  // Above: the job's step time, on the same steps.
  function timeStrip(g, nc) {
    const times = data.times.slice(view.c0, view.c1), seen = times.filter(t => t >= 0);
    if (!seen.length) return;
    const most = Math.max(...seen), y0 = top - 8, h = 28;
    g.fillStyle = css('--muted'); g.textAlign = 'right'; g.textBaseline = 'middle';
    g.fillText('step time', plot.x - 12, y0 - h / 2);
    g.textAlign = 'left';
    g.fillText(fmtSeconds(most), plot.x + plot.w + 8, y0 - h + 3);
    g.beginPath(); g.moveTo(plot.x, y0);
    times.forEach((t, c) => { const y = y0 - h * Math.max(0, t) / most; g.lineTo(plot.x + c * plot.w / nc, y); g.lineTo(plot.x + (c + 1) * plot.w / nc, y); });
    g.lineTo(plot.x + plot.w, y0); g.closePath();
    g.fillStyle = css('--band'); g.fill();
    g.beginPath();
    times.forEach((t, c) => { const y = y0 - h * Math.max(0, t) / most; g.lineTo(plot.x + c * plot.w / nc, y); g.lineTo(plot.x + (c + 1) * plot.w / nc, y); });
    g.strokeStyle = css('--peer'); g.lineWidth = 1.25; g.stroke();
  }
  // Right: each rank's median over all steps.
  function medianBars(g, nr) {
    if (!data.layers[0].ratio || layer !== data.layers[0]) return;
    const x0 = plot.x + plot.w + 10, w = right - 18, zero = x0 + w * .3, ph = Math.min(nr, Math.round(plot.h));
    g.fillStyle = css('--muted'); g.textAlign = 'left'; g.textBaseline = 'top';
    g.fillText('median', x0, plot.y + plot.h + 10);
    g.fillStyle = css('--line'); g.fillRect(zero - .5, plot.y, 1, plot.h);
    for (let y = 0; y < ph; y++) {
      const ra = view.r0 + Math.floor(y * nr / ph), rb = Math.max(ra + 1, view.r0 + Math.floor((y + 1) * nr / ph));
      let value = 0, state = null;
      for (let r = ra; r < rb; r++) {
        const m = data.medians[order[r]], x = m > 0 ? Math.log(m) : 0;
        if (culprit.has(order[r])) { value = x; state = culprit.get(order[r]).state; break; }
        if (Math.abs(x) > Math.abs(value)) value = x;
      }
      const d = Math.max(-.3, Math.min(.7, .7 * value / layer.reach)) * w, hh = Math.max(1, plot.h / ph - (plot.h / ph > 4 ? 2 : 0));
      g.fillStyle = state ? stateColour(state) : css('--peer');
      g.fillRect(Math.min(zero, zero + d), plot.y + y * plot.h / ph + (plot.h / ph > 4 ? 1 : 0), Math.max(.75, Math.abs(d)), hh);
    }
  }
  function legend() {
    const box = $('map-legend');
    const bar = document.createElement('canvas'), g0 = box.querySelector('canvas') || bar;
    if (!g0.isConnected) {
      const none = document.createElement('span');
      none.className = 'swatch'; none.append(document.createElement('i'), 'not measured');
      box.replaceChildren(bar, none);
    }
    box.querySelector('i').style.background = hex(lut[0]);
    const g = fit(g0, 280, 30), stops = ramps[layer.ratio ? 'ratio' : 'share'][isDark() ? 'dark' : 'light'];
    for (let x = 0; x < 240; x++) { g.fillStyle = hex(pack(colourAt(stops, x / 239))); g.fillRect(20 + x, 0, 1.5, 11); }
    g.fillStyle = css('--muted'); g.textAlign = 'center'; g.textBaseline = 'top';
    const ticks = layer.ratio ? [-1, -.5, 0, .5, 1].map(t => [t * layer.reach, fmtTimes(Math.exp(t * layer.reach))]) : [0, .5, 1].map(t => [t * layer.reach, fmtShare(t * layer.reach)]);
    for (const [level, text] of ticks) g.fillText(text, 20 + 239 * position(layer, level), 15);
    box.title = layer.title;
    $('map-sub').textContent = layer.title + (grouped ? '; ' + Math.round((data.to[columns - 1] - data.from[0] + 1) / columns) + ' steps to a column' : '');
  }
  const grouped = data.from.some((f, c) => f !== data.to[c]);

  function overlay() {
    const g = canvas.getContext('2d');
    g.save();
    g.setTransform(1, 0, 0, 1, 0, 0);
    g.clearRect(0, 0, canvas.width, canvas.height);
    g.drawImage(base, 0, 0);
    g.restore();
    if (drag && drag.moved) {
      g.fillStyle = css('--focus'); g.globalAlpha = .18;
      g.fillRect(Math.min(drag.x, drag.x1), Math.min(drag.y, drag.y1), Math.abs(drag.x1 - drag.x), Math.abs(drag.y1 - drag.y));
      g.globalAlpha = 1; g.strokeStyle = css('--focus'); g.lineWidth = 1;
      g.strokeRect(Math.min(drag.x, drag.x1), Math.min(drag.y, drag.y1), Math.abs(drag.x1 - drag.x), Math.abs(drag.y1 - drag.y));
    } else if (cursor) {
      const h = Math.max(3, plot.h / (view.r1 - view.r0)), w = Math.max(3, plot.w / (view.c1 - view.c0));
      g.strokeStyle = css('--ink'); g.lineWidth = 1.5;
      g.strokeRect(colX(cursor.c + .5) - w / 2, rowY(cursor.r + .5) - h / 2, w, h);
    }
  }
  function cellAt(x, y) {
    const c = view.c0 + Math.floor((x - plot.x) / plot.w * (view.c1 - view.c0)), r = view.r0 + Math.floor((y - plot.y) / plot.h * (view.r1 - view.r0));
    if (x < plot.x || x >= plot.x + plot.w || y < plot.y || y >= plot.y + plot.h) return null;
    return strongest(r, c, (view.r1 - view.r0) / plot.h, (view.c1 - view.c0) / plot.w);
  }
  // Of the ranks under one pixel, the one that stands out.
  function strongest(r, c, nr, nc) {
    let best = r, most = -1;
    for (let k = r; k < Math.min(view.r1, r + Math.max(1, Math.ceil(nr))); k++) {
      const code = layer.cells[order[k] * columns + c], d = culprit.has(order[k]) ? 1e9 : code ? Math.abs(layer.levels[code]) : -.5;
      if (d > most) { most = d; best = k; }
    }
    return { r: Math.max(0, Math.min(rows - 1, best)), c: Math.max(0, Math.min(columns - 1, c)) };
  }
  function tell(x, y) {
    const i = order[cursor.r], code = layer.cells[i * columns + cursor.c], mark = culprit.get(i), t = data.times[cursor.c];
    const value = layer.levels[code];
    showTip(x, y, [
      [code ? layer.ratio ? fmtTimes(Math.exp(value)) : fmtShare(value) : 'not measured', 'big'],
      ['rank ' + data.ranks[i] + ' on ' + nodeNames[data.node[i]]],
      [place(i), 'dim'], [stepWord(cursor.c) + (t >= 0 ? ', ' + fmtSeconds(t) + ' a step' : ''), 'dim'],
      [data.medians[i] > 0 ? 'median of all steps: ' + fmtTimes(data.medians[i]) : '', 'dim'],
      [mark ? 'named by the verdict: ' + mark.state : ''],
    ]);
  }
  const local = e => { const b = canvas.getBoundingClientRect(); return [e.clientX - b.left, e.clientY - b.top]; };
  canvas.addEventListener('pointerdown', e => {
    const [x, y] = local(e);
    if (e.button || !cellAt(x, y)) return;
    drag = { x, y, x1: x, y1: y, moved: false };
    canvas.setPointerCapture(e.pointerId);
  });
  canvas.addEventListener('pointermove', e => {
    const [x, y] = local(e);
    if (drag) {
      drag.x1 = Math.max(plot.x, Math.min(plot.x + plot.w - .01, x)); drag.y1 = Math.max(plot.y, Math.min(plot.y + plot.h - .01, y));
      drag.moved = drag.moved || Math.abs(drag.x1 - drag.x) > 4 || Math.abs(drag.y1 - drag.y) > 4;
      if (drag.moved) hideTip();
      return overlay();
    }
    cursor = cellAt(x, y);
    overlay();
    cursor ? tell(e.clientX, e.clientY) : hideTip();
  });
  const drop = () => {
    const d = drag;
    drag = null;
    if (d && d.moved) {
      const a = at(Math.min(d.x, d.x1), Math.min(d.y, d.y1)), b = at(Math.max(d.x, d.x1), Math.max(d.y, d.y1));
      // A flat drag zooms one way only.
      if (Math.abs(d.y1 - d.y) < 8) { a.r = view.r0; b.r = view.r1 - 1; }
      if (Math.abs(d.x1 - d.x) < 8) { a.c = view.c0; b.c = view.c1 - 1; }
      zoom({ r0: a.r, r1: b.r + 1, c0: a.c, c1: b.c + 1 });
    } else overlay();
  };
  const at = (x, y) => ({ c: view.c0 + Math.floor((x - plot.x) / plot.w * (view.c1 - view.c0)), r: view.r0 + Math.floor((y - plot.y) / plot.h * (view.r1 - view.r0)) });
  canvas.addEventListener('pointerup', drop);
  canvas.addEventListener('pointercancel', () => { drag = null; overlay(); });
  canvas.addEventListener('pointerleave', () => { if (!drag) { cursor = null; hideTip(); overlay(); } });
  canvas.addEventListener('dblclick', () => zoom(full()));
  canvas.addEventListener('blur', () => { cursor = null; hideTip(); overlay(); });
  function zoom(v) {
    const nr = Math.max(1, Math.min(rows, v.r1 - v.r0)), nc = Math.max(1, Math.min(columns, v.c1 - v.c0));
    const r0 = Math.max(0, Math.min(rows - nr, v.r0)), c0 = Math.max(0, Math.min(columns - nc, v.c0));
    view = { r0, r1: r0 + nr, c0, c1: c0 + nc };
    paint();
  }
  function zoomBy(f) {
    const r = cursor ? cursor.r : focusRow(), c = cursor ? cursor.c : (view.c0 + view.c1) / 2;
    const nr = Math.max(4, Math.round((view.r1 - view.r0) * f)), nc = Math.max(8, Math.round((view.c1 - view.c0) * f));
    zoom({ r0: Math.round(r - nr / 2), r1: Math.round(r - nr / 2) + nr, c0: Math.round(c - nc / 2), c1: Math.round(c - nc / 2) + nc });
  }
  // Without a cursor zooming goes towards the first culprit in sight.
  const focusRow = () => marked()[0] ?? (view.r0 + view.r1) / 2;
  $('map-in').addEventListener('click', () => zoomBy(.5));
  $('map-out').addEventListener('click', () => zoomBy(2));
  $('map-reset').addEventListener('click', () => zoom(full()));
  canvas.addEventListener('keydown', e => {
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[e.key];
    if (move) {
      cursor = cursor || { r: Math.floor(focusRow()), c: view.c0 };
      cursor = { r: Math.max(0, Math.min(rows - 1, cursor.r + move[0] * (e.shiftKey ? 10 : 1))), c: Math.max(0, Math.min(columns - 1, cursor.c + move[1] * (e.shiftKey ? 10 : 1))) };
      const dr = cursor.r < view.r0 ? cursor.r - view.r0 : cursor.r >= view.r1 ? cursor.r - view.r1 + 1 : 0;
      const dc = cursor.c < view.c0 ? cursor.c - view.c0 : cursor.c >= view.c1 ? cursor.c - view.c1 + 1 : 0;
      if (dr || dc) zoom({ r0: view.r0 + dr, r1: view.r1 + dr, c0: view.c0 + dc, c1: view.c1 + dc });
      overlay();
      const b = canvas.getBoundingClientRect();
      tell(b.left + colX(cursor.c + .5), b.top + rowY(cursor.r + .5));
    } else if (e.key === '+' || e.key === '=') zoomBy(.5);
    else if (e.key === '-') zoomBy(2);
    else if (e.key === '0' || e.key === 'Escape') zoom(full());
    else return;
    e.preventDefault();
  });
  choice($('map-layers'), data.layers.map(l => [l.name, () => { layer = l; paint(); }]), 0);
  choice($('map-order'), [['By role', () => { order = orders.role; zoom(full()); }], ['By node', () => { order = orders.node; zoom(full()); }]], order === orders.role ? 0 : 1);
  redraws.push(paint);
  paint();
}
function choice(box, options, chosen) {
  if (options.length < 2) return;
  box.replaceChildren(...options.map(([text, pick], i) => {
    const b = document.createElement('button');
    b.type = 'button'; b.textContent = text; b.setAttribute('aria-pressed', i === chosen);
    b.addEventListener('click', () => {
      for (const other of box.children) other.setAttribute('aria-pressed', other === b);
      pick();
    });
    return b;
  }));
}
