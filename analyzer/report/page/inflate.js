// Inflate (RFC 1951).
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
