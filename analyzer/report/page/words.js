// Numbers and words.
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

// Tooltip.
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
