'use strict';
// The page's script: draws the heat map, the topology and the evidence charts
// from the JSON in #data. No library, no network; text goes in by textContent.
(() => {
const data = JSON.parse(document.getElementById('data').textContent);
const $ = id => document.getElementById(id);
const root = document.documentElement;

// ---- theme ----------------------------------------------------------------
const wantsDark = matchMedia('(prefers-color-scheme: dark)');
const redraws = [];
let printing = false;
const isDark = () => !printing && (root.dataset.theme === 'dark' || root.dataset.theme === 'auto' && wantsDark.matches);
const redraw = () => redraws.forEach(f => f());
$('theme').addEventListener('click', () => { root.dataset.theme = isDark() ? 'light' : 'dark'; redraw(); });
wantsDark.addEventListener('change', redraw);
let before = 'auto';
addEventListener('beforeprint', () => { printing = true; before = root.dataset.theme; root.dataset.theme = 'light'; redraw(); });
addEventListener('afterprint', () => { printing = false; root.dataset.theme = before; redraw(); });
const css = name => getComputedStyle(root).getPropertyValue(name).trim();

// ---- inflate (RFC 1951) ---------------------------------------------------
// With a table per code: entry = symbol << 4 | length, indexed by reversed bits.
function codeTable(lengths) {
  const most = Math.max(1, ...lengths), table = new Uint32Array(1 << most), next = [];
  const counts = new Array(most + 2).fill(0);
  for (const l of lengths) if (l) counts[l]++;
  for (let l = 1, code = 0; l <= most; l++) { next[l] = code; code = (code + counts[l]) << 1; }
  lengths.forEach((l, symbol) => {
    if (!l) return;
    let code = next[l]++, reversed = 0;
    for (let i = 0; i < l; i++) { reversed = reversed << 1 | code & 1; code >>= 1; }
    for (let i = reversed; i < table.length; i += 1 << l) table[i] = symbol << 4 | l;
  });
  return { table, most };
}
const fixed = () => [
  codeTable(Array.from({ length: 288 }, (_, i) => i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8)),
  codeTable(new Array(30).fill(5)),
];
function inflate(src, size) {
  const out = new Uint8Array(size);
  let pos = 0, hold = 0, have = 0, at = 0;
  const bits = n => {
    while (have < n) { hold |= src[pos++] << have; have += 8; }
    const v = hold & (1 << n) - 1;
    hold >>>= n; have -= n;
    return v;
  };
  const symbol = ({ table, most }) => {
    while (have < most) { hold |= (pos < src.length ? src[pos] : 0) << have; pos++; have += 8; }
    const e = table[hold & (1 << most) - 1], n = e & 15;
    if (!n) throw new Error('damaged data');
    hold >>>= n; have -= n;
    return e >> 4;
  };
  for (let last = 0; !last;) {
    last = bits(1);
    const kind = bits(2);
    if (kind === 0) { // stored
      pos -= have >> 3; hold = have = 0;
      const n = src[pos] | src[pos + 1] << 8;
      out.set(src.subarray(pos + 4, pos + 4 + n), at);
      pos += 4 + n; at += n;
      continue;
    }
    let literal, distance;
    if (kind === 1) [literal, distance] = fixed();
    else {
      const nl = bits(5) + 257, nd = bits(5) + 1, nc = bits(4) + 4, order = new Array(19).fill(0);
      for (let i = 0; i < nc; i++) order[[16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15][i]] = bits(3);
      const codes = codeTable(order), lengths = [];
      while (lengths.length < nl + nd) {
        const s = symbol(codes);
        if (s < 16) lengths.push(s);
        else {
          const value = s === 16 ? lengths[lengths.length - 1] : 0;
          for (let n = s === 16 ? bits(2) + 3 : s === 17 ? bits(3) + 3 : bits(7) + 11; n > 0; n--) lengths.push(value);
        }
      }
      literal = codeTable(lengths.slice(0, nl)); distance = codeTable(lengths.slice(nl));
    }
    for (;;) {
      const s = symbol(literal);
      if (s < 256) { out[at++] = s; continue; }
      if (s === 256) break;
      const l = s - 257, el = l < 8 || l === 28 ? 0 : (l >> 2) - 1;
      const length = l === 28 ? 258 : (l < 8 ? l + 3 : ((l & 3) + 4 << el) + 3) + bits(el);
      const d = symbol(distance), ed = d < 4 ? 0 : (d >> 1) - 1;
      const back = (d < 4 ? d + 1 : ((d & 1) + 2 << ed) + 1) + bits(ed);
      for (let i = 0; i < length; i++, at++) out[at] = out[at - back];
    }
  }
  return out;
}
function bytes(base64) {
  const text = atob(base64), out = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) out[i] = text.charCodeAt(i);
  return out;
}

// ---- numbers and words ------------------------------------------------------
const fmtTimes = x => x.toFixed(2) + '×';
const fmtShare = x => (100 * x).toFixed(x < .0995 ? 1 : 0) + '%';
function fmtSeconds(s) {
  const [x, unit] = s < .9995e-3 ? [s * 1e6, 'µs'] : s < .9995 ? [s * 1e3, 'ms'] : [s, 's'];
  return x.toFixed(x >= 99.95 ? 0 : x >= 9.995 ? 1 : 2) + ' ' + unit;
}
const stepWord = c => data.from[c] === data.to[c] ? 'step ' + data.from[c] : 'steps ' + data.from[c] + '–' + data.to[c];
const culprit = new Map(data.culprits.map(c => [c.row, c]));
function place(r) {
  const parts = [];
  if (data.stage[r] >= 0 && stages > 1) parts.push('stage ' + data.stage[r]);
  if (data.replica[r] >= 0) parts.push('replica ' + data.replica[r]);
  return parts.join(', ');
}
const stages = data.stage.reduce((a, b) => Math.max(a, b + 1), 0);

// Round step numbers for an axis whose columns are `wide` pixels each: [column,
// text], at least `apart` pixels from each other. Steps may have gaps and repeat.
function stepTicks(from, to, wide, apart) {
  const n = from.length, span = Math.max(1, to[n - 1] - from[0]), most = Math.max(2, n * wide / apart);
  let nice = 1;
  for (let p = 1; span / nice > most; p *= 10) nice = [2, 5, 10].map(f => f * p).find(v => span / v <= most) || 10 * p;
  const ticks = [];
  let last = -1e9;
  for (let c = 0; c < n; c++) {
    const round = Math.ceil(from[c] / nice) * nice;
    const exact = round <= to[c];
    if ((exact || c === 0) && (c - last) * wide >= apart) { ticks.push([c, (exact ? round : from[c]).toLocaleString('en')]); last = c; }
  }
  // Sampled steps hit few round numbers: then every so many columns by their own.
  const every = Math.max(1, Math.ceil(apart / wide));
  if (ticks.length < Math.min(4, n / every)) {
    ticks.length = 0;
    for (let c = 0; c < n; c += every) ticks.push([c, from[c].toLocaleString('en')]);
  }
  return ticks;
}

// ---- tooltip ----------------------------------------------------------------
const tip = $('tip');
function showTip(x, y, lines) {
  tip.replaceChildren(...lines.filter(l => l[0]).map(([text, cls]) => {
    const d = document.createElement('div');
    d.textContent = text;
    if (cls) d.className = cls;
    return d;
  }));
  tip.hidden = false;
  const w = tip.offsetWidth, h = tip.offsetHeight;
  tip.style.left = Math.max(8, x + 16 + w > innerWidth - 8 ? x - w - 14 : x + 16) + 'px';
  tip.style.top = Math.max(8, Math.min(innerHeight - h - 8, y + 14)) + 'px';
}
const hideTip = () => { tip.hidden = true; };

// ---- colours ----------------------------------------------------------------
// Stops are mixed in OKLab, so that equal steps look equal; blue and orange stay
// apart for every kind of colour vision, and lightness alone tells the distance.
const ramps = {
  ratio: { light: ['#173f66', '#4f86b0', '#a9c6da', '#eeebe5', '#f2bd8a', '#d4652c', '#75190f'],
           dark: ['#b4dcff', '#5b9fd0', '#2f566f', '#262b32', '#7d4a26', '#e0722f', '#ffd9a0'] },
  share: { light: ['#f6f4ef', '#c4dcd8', '#6fa9ab', '#2c6b7c', '#123a52'],
           dark: ['#1c2026', '#1f4450', '#2f7583', '#69b0b3', '#d3efe6'] },
  none: { light: '#d0cbc1', dark: '#3a3f47' },
};
const toLinear = c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4;
const toSRGB = c => 255 * (c <= .0031308 ? 12.92 * c : 1.055 * c ** (1 / 2.4) - .055);
function lab(hex) {
  const [r, g, b] = [1, 3, 5].map(i => toLinear(parseInt(hex.slice(i, i + 2), 16) / 255));
  const l = Math.cbrt(.4122214708 * r + .5363325363 * g + .0514459929 * b);
  const m = Math.cbrt(.2119034982 * r + .6806995451 * g + .1073969566 * b);
  const s = Math.cbrt(.0883024619 * r + .2817188376 * g + .6299787005 * b);
  return [.2104542553 * l + .793617785 * m - .0040720468 * s, 1.9779984951 * l - 2.428592205 * m + .4505937099 * s, .0259040371 * l + .7827717662 * m - .808675766 * s];
}
function rgb([L, a, b]) {
  const l = (L + .3963377774 * a + .2158037573 * b) ** 3, m = (L - .1055613458 * a - .0638541728 * b) ** 3, s = (L - .0894841775 * a - 1.291485548 * b) ** 3;
  return [4.0767416621 * l - 3.3077115913 * m + .2309699292 * s, -1.2684380046 * l + 2.6097574011 * m - .3413193965 * s, -.0041960863 * l - .7034186147 * m + 1.707614701 * s]
    .map(c => Math.max(0, Math.min(255, Math.round(toSRGB(Math.max(0, c))))));
}
function colourAt(stops, t) {
  const x = Math.max(0, Math.min(1, t)) * (stops.length - 1), i = Math.min(stops.length - 2, Math.floor(x)), f = x - i;
  const a = lab(stops[i]), b = lab(stops[i + 1]);
  return rgb(a.map((v, k) => v + f * (b[k] - v)));
}
const pack = ([r, g, b]) => (255 << 24 | b << 16 | g << 8 | r) >>> 0;
// position of a level on the ramp: 0…1; reach is the logarithm at its end.
const position = (layer, level) => layer.ratio ? .5 + .5 * Math.sign(level) * Math.min(1, Math.abs(level) / layer.reach) ** 1.15 : Math.min(1, level / layer.reach);
function palette(layer) {
  const theme = isDark() ? 'dark' : 'light', stops = ramps[layer.ratio ? 'ratio' : 'share'][theme];
  const lut = new Uint32Array(256);
  lut[0] = pack(rgb(lab(ramps.none[theme])));
  for (let k = 1; k < 256; k++) lut[k] = pack(colourAt(stops, position(layer, layer.levels[k])));
  return lut;
}
const hex = packed => '#' + [0, 8, 16].map(s => (packed >>> s & 255).toString(16).padStart(2, '0')).join('');

// ---- canvas -----------------------------------------------------------------
function fit(canvas, width, height) {
  const scale = Math.min(3, devicePixelRatio || 1);
  canvas.width = Math.round(width * scale); canvas.height = Math.round(height * scale);
  canvas.style.height = height + 'px';
  const g = canvas.getContext('2d');
  g.setTransform(scale, 0, 0, scale, 0, 0);
  g.font = '11px ' + getComputedStyle(document.body).fontFamily;
  return g;
}

// ---- layers -----------------------------------------------------------------
const columns = data.from.length, rows = data.ranks.length;
for (const layer of data.layers) {
  layer.cells = inflate(bytes(layer.data), rows * columns);
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

// ---- heat map ---------------------------------------------------------------
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

// ---- topology ---------------------------------------------------------------
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

// ---- evidence charts ----------------------------------------------------------
const svgNS = 'http://www.w3.org/2000/svg';
function svg(parent, name, attributes, text) {
  const e = document.createElementNS(svgNS, name);
  for (const k in attributes) e.setAttribute(k, attributes[k]);
  if (text !== undefined) e.textContent = text;
  parent.append(e);
  return e;
}
function niceTicks(most, n) {
  const raw = most / n, p = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 2.5, 5, 10].find(s => s * p >= raw) * p, out = [];
  for (let t = 0; t <= most * 1.0001; t += step) out.push(t);
  return out;
}
for (const c of data.charts) {
  const card = [...document.querySelectorAll('.culprit')].find(e => e.dataset.node === c.node);
  if (card) card.querySelector('.charts').append(chart(c));
}
function chart(c) {
  const figure = document.createElement('figure'), caption = document.createElement('figcaption');
  figure.className = 'chart';
  const key = (cls, text) => { const s = document.createElement('span'), i = document.createElement('i'); s.className = 'key'; i.className = cls; s.append(i, text); return s; };
  const name = document.createElement('b');
  name.textContent = c.metric[0].toUpperCase() + c.metric.slice(1) + ', seconds a step';
  caption.append(name, key('own', 'rank ' + c.rank), key('peers', 'peers, median'), key('band', '10–90% of peers'));
  figure.append(caption);
  const W = 620, H = 190, l = 52, r = 10, t = 20, b = 24, n = c.steps.length;
  const seen = [...c.own, ...c.high, ...c.peers].filter(v => v !== null), most = Math.max(1e-9, ...seen) * 1.06;
  const x = i => l + (n > 1 ? i * (W - l - r) / (n - 1) : (W - l - r) / 2), y = v => H - b - v * (H - t - b) / most;
  const s = svg(figure, 'svg', { viewBox: `0 0 ${W} ${H}`, role: 'img', 'aria-label': `${c.metric} of rank ${c.rank} against its peers over the steps` });
  // One unit for the whole axis.
  const [factor, unit] = most < 2e-3 ? [1e6, ' µs'] : most < 2 ? [1e3, ' ms'] : [1, ' s'], axis = v => +(v * factor).toPrecision(4) + unit;
  for (const v of niceTicks(most, 4)) {
    svg(s, 'line', { class: 'grid', x1: l, x2: W - r, y1: y(v), y2: y(v) });
    svg(s, 'text', { x: l - 8, y: y(v) + 4, 'text-anchor': 'end' }, v === 0 ? '0' : axis(v));
  }
  for (const [i, label] of stepTicks(c.steps, c.steps.map((v, i) => i + 1 < n && c.steps[i + 1] > v ? c.steps[i + 1] - 1 : v), (W - l - r) / Math.max(1, n - 1), 70))
    svg(s, 'text', { x: x(i), y: H - 6, 'text-anchor': 'middle' }, label);
  // Runs of points without a gap.
  const runs = (...lists) => {
    const out = [];
    let run = [];
    for (let i = 0; i <= n; i++) {
      if (i < n && lists.every(list => list[i] !== null)) run.push(i);
      else if (run.length) { out.push(run); run = []; }
    }
    return out;
  };
  const path = (list, points) => points.map((i, k) => (k ? 'L' : 'M') + x(i).toFixed(1) + ' ' + y(list[i]).toFixed(1)).join('');
  for (const run of runs(c.low, c.high)) svg(s, 'path', { class: 'band', d: path(c.high, run) + path(c.low, [...run].reverse()).replace('M', 'L') + 'Z' });
  for (const [cls, list] of [['peers', c.peers], ['own', c.own]]) for (const run of runs(list)) {
    if (run.length === 1) svg(s, 'circle', { class: cls, cx: x(run[0]), cy: y(list[run[0]]), r: 1.5 });
    else svg(s, 'path', { class: cls, d: path(list, run) });
  }
  const when = [[c.since, 'began'], [c.detected, 'seen'], [c.until, 'ended']].filter(([i]) => i >= 0);
  let taken = -99;
  when.forEach(([i, word], k) => {
    svg(s, 'line', { class: 'when', x1: x(i), x2: x(i), y1: t - 8, y2: H - b });
    // Where two lines are near, the first word goes to the left of its line; at the
    // edge one text stands for both.
    const near = k + 1 < when.length && x(when[k + 1][0]) - x(i) < 44, before = near && x(i) > l + 44;
    if (x(i) < taken) return;
    svg(s, 'text', { x: x(i) + (before ? -4 : 4), y: t - 1, 'text-anchor': before ? 'end' : 'start' }, near && !before ? word + ', ' + when[k + 1][1] : word);
    taken = before ? x(i) : x(i) + (near ? 70 : 44);
  });
  const cross = svg(s, 'line', { class: 'cross', y1: t, y2: H - b, x1: 0, x2: 0, visibility: 'hidden' });
  s.addEventListener('pointermove', e => {
    const box = s.getBoundingClientRect(), i = Math.max(0, Math.min(n - 1, Math.round(((e.clientX - box.left) / box.width * W - l) / (W - l - r) * (n - 1))));
    cross.setAttribute('x1', x(i)); cross.setAttribute('x2', x(i)); cross.setAttribute('visibility', 'visible');
    const own = c.own[i], peers = c.peers[i];
    showTip(e.clientX, e.clientY, [
      [own === null ? 'not measured' : fmtSeconds(own), 'big'], ['peers ' + (peers === null ? 'not measured' : fmtSeconds(peers)) + (own !== null && peers > 0 ? ', ratio ' + fmtTimes(own / peers) : '')],
      ['step ' + c.steps[i], 'dim'],
    ]);
  });
  s.addEventListener('pointerleave', () => { cross.setAttribute('visibility', 'hidden'); hideTip(); });
  return figure;
}

let resizing = 0;
addEventListener('resize', () => { cancelAnimationFrame(resizing); resizing = requestAnimationFrame(redraw); });
addEventListener('scroll', hideTip, { passive: true });
root.dataset.ready = 'yes';
})();
