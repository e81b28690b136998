'use strict';
// The page's script: draws the heat map, the topology and the evidence charts
// from the JSON in #data. No library, no network; text goes in by textContent. It is
// one function, joined from the files here (html.go): this one opens it, charts.js
// closes it.
(async () => {
const data = JSON.parse(document.getElementById('data').textContent);
const $ = id => document.getElementById(id);
const root = document.documentElement;

// Theme.
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
