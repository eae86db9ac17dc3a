// A line of the messages that were there in the last minutes.

import { count, svg } from './dom.js';
import { samples } from './live.js';

const width = 90;
const height = 20;
const most = 60; // samples that fit

/** spark draws the active messages of an entity, the newest at the right. The label says the same in words. */
export function spark(path) {
  const drawing = svg('svg', { class: 'spark', viewBox: `0 0 ${width} ${height}`, width, height, role: 'img' });
  redraw(drawing, path);
  return drawing;
}

/** redraw draws anew what has changed. */
export function redraw(drawing, path) {
  const all = samples(path).slice(-most).map(([active]) => active);
  const top = Math.max(1, ...all);
  const label = all.length < 2 ? 'no history yet' :
    `active messages: ${count(all[0])} to ${count(all.at(-1))}, at most ${count(Math.max(...all))}`;
  drawing.setAttribute('aria-label', label);
  const step = (width - 2) / (most - 1);
  const points = all.map((n, i) => `${(width - 1 - (all.length - 1 - i) * step).toFixed(1)},${(height - 2 - (n / top) * (height - 5)).toFixed(1)}`);
  drawing.replaceChildren(svg('title', {}, label), svg('line', { x1: 0, x2: width, y1: height - 0.5, y2: height - 0.5 }), svg('polyline', { points: points.join(' ') }));
}
