// All queues and topics in a table, with what is in them.

import { everywhere, list } from './api.js';
import { View, button, bytes, count, h, note, problem, select, table } from './dom.js';
import { rows, watch } from './live.js';
import { redraw, spark } from './spark.js';
import { link, sign } from './tree.js';

const pageSize = 50;
const numbers = ['active', 'deadLetter', 'scheduled', 'deferred', 'locked', 'transfer'];
const heads = ['Active', 'Dead letters', 'Scheduled', 'Deferred', 'Locked', 'In transfer'];

class Overview extends View {
  open() {
    if (!everywhere()) {
      this.show(h('h1', {}, 'Entities'), note('You may not list entities. Name one at the side.'));
      return;
    }
    this.skip = 0;
    this.search = h('input', { type: 'search', 'aria-label': 'Search by name', placeholder: 'part of a name', oninput: () => this.typed() });
    this.kind = select([['', 'queues and topics'], ['queue', 'queues'], ['topic', 'topics']], '', { 'aria-label': 'Kind', onchange: () => this.first() });
    this.body = h('div', {});
    this.show(h('div', { class: 'title' }, h('h1', {}, 'Entities'), h('span', { class: 'space' }),
      h('a', { class: 'button', href: '#/create/queue' }, 'New queue'), h('a', { class: 'button', href: '#/create/topic' }, 'New topic')),
    h('div', { class: 'bar' }, this.search, this.kind), this.body);
    addEventListener('entities-changed', () => this.load(), { signal: this.signal });
    this.load();
  }

  typed() {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.first(), 200);
  }

  first() {
    this.skip = 0;
    this.load();
  }

  async load() {
    try {
      const got = await list({ search: this.search.value.trim(), kind: this.kind.value, skip: this.skip, top: pageSize }, this.latest());
      for (const row of got.entities) {
        rows.set(row.name.toLowerCase(), row);
      }
      this.draw(got);
    } catch (error) {
      if (error.name !== 'AbortError') {
        this.body.replaceChildren(problem(error));
      }
    }
  }

  draw(got) {
    this.off?.();
    if (got.total === 0) {
      this.body.replaceChildren(note(this.search.value ? 'No entity has such a name.' : 'There is no queue and no topic yet. ',
        this.search.value ? '' : h('a', { href: '#/create/queue' }, 'Create a queue.')));
      return;
    }
    const columns = ['Name', 'Status', ...heads.map((c) => [c, 'number']), ['Size', 'number'], 'Last minutes'];
    const lines = got.entities.map((e) => this.line(e));
    const last = this.skip + got.entities.length;
    const turn = (to) => () => {
      this.skip = to;
      this.load();
    };
    this.body.replaceChildren(table('Entities and their counts', columns, lines), h('div', { class: 'pager' },
      button('Previous', turn(Math.max(0, this.skip - pageSize)), { disabled: this.skip === 0 }),
      h('span', {}, `${count(this.skip + 1)} to ${count(last)} of ${count(got.total)}`),
      button('Next', turn(got.next), { disabled: !got.next })));
    this.off = watch({ paths: got.entities.map((e) => e.name) }, () => this.refresh());
    this.until(this.off);
  }

  line(e) {
    const cells = numbers.map((name) => h('td', { class: 'number', 'data-count': name }));
    const status = e.suspended ? `${e.status}, suspended` : e.status;
    const line = h('tr', { 'data-path': e.name.toLowerCase() }, h('th', { scope: 'row' }, sign(e.kind), h('a', { href: link(e.name) }, e.name)),
      h('td', {}, status === 'Active' ? h('span', { class: 'muted' }, status) : h('span', { class: 'mark' }, status)), cells,
      h('td', { class: 'number', 'data-count': 'sizeBytes' }), h('td', {}, spark(e.name)));
    this.fill(line, e);
    return line;
  }

  fill(line, e) {
    for (const cell of line.querySelectorAll('[data-count]')) {
      const name = cell.dataset.count;
      const n = e.counts?.[name];
      const topic = e.kind === 'topic' && !['scheduled', 'sizeBytes'].includes(name);
      cell.textContent = topic ? '' : name === 'sizeBytes' ? bytes(n) : count(n);
      cell.classList.toggle('zero', n === 0);
      cell.classList.toggle('bad', name === 'deadLetter' && n > 0);
    }
  }

  refresh() {
    for (const line of this.querySelectorAll('tr[data-path]')) {
      const row = rows.get(line.dataset.path);
      if (row && !row.missing) {
        this.fill(line, row);
        redraw(line.querySelector('.spark'), row.name);
      }
    }
  }
}

customElements.define('bb-overview', Overview);
