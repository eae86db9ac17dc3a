// A line of the messages that were there in the last minutes.

import { count, svg } from './dom.js';
import { samples } from './live.js';

const width = 84;
const height = 18;

/** spark draws the active messages of an entity. The label says the same in words. */
export function spark(path) {
  const drawing = svg('svg', { class: 'spark', viewBox: `0 0 ${width} ${height}`, width, height, role: 'img' });
  redraw(drawing, path);
  return drawing;
}

/** redraw draws anew what has changed. */
export function redraw(drawing, path) {
  const all = samples(path).map(([active]) => active);
  const most = Math.max(1, ...all);
  const label = all.length < 2 ? 'no history yet' :
    `active messages: ${count(all[0])} to ${count(all.at(-1))}, at most ${count(most)}`;
  drawing.setAttribute('aria-label', label);
  const step = width / Math.max(29, all.length - 1);
  const points = all.map((n, i) => `${(i * step).toFixed(1)},${(height - 2 - (n / most) * (height - 4)).toFixed(1)}`);
  drawing.replaceChildren(svg('title', {}, label), svg('polyline', { points: points.join(' ') }));
}
