// Colours.
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

// Canvas.
function fit(canvas, width, height) {
  const scale = Math.min(3, devicePixelRatio || 1);
  canvas.width = Math.round(width * scale); canvas.height = Math.round(height * scale);
  canvas.style.height = height + 'px';
  const g = canvas.getContext('2d');
  g.setTransform(scale, 0, 0, scale, 0, 0);
  g.font = '11px ' + getComputedStyle(document.body).fontFamily;
  return g;
}
