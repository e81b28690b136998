// Evidence charts.
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
