// The subscriptions of a topic.

import { list } from './api.js';
import { View, count, h, note, table } from './dom.js';
import { rows, watch } from './live.js';
import { link, shortName } from './tree.js';

const numbers = [['active', 'Active'], ['deadLetter', 'Dead letters'], ['deferred', 'Deferred'], ['locked', 'Locked'], ['transfer', 'In transfer']];

class Subscriptions extends View {
  async open() {
    addEventListener('entities-changed', () => this.load(), { signal: this.signal });
    await this.load();
  }

  async load() {
    try {
      const got = await list({ topic: this.path, top: 1000 }, this.latest());
      this.draw(got.entities);
    } catch (error) {
      this.fails(error);
    }
  }

  draw(all) {
    const make = h('div', { class: 'bar' }, h('a', { class: 'button', href: `#/create/subscription/${encodeURIComponent(this.path)}` }, 'New subscription'));
    if (all.length === 0) {
      this.show(make, note('The topic has no subscription. Messages that are sent to it go nowhere.'));
      return;
    }
    const columns = ['Name', 'Status', ['Rules', 'number'], ...numbers.map(([, title]) => [title, 'number']), 'Forwards to'];
    this.show(make, table(`Subscriptions of ${this.path}`, columns, all.map((e) => this.line(e))));
    this.off?.();
    this.off = watch({ paths: all.slice(0, 150).map((e) => e.name) }, () => this.refresh());
    this.until(this.off);
  }

  line(e) {
    const line = h('tr', { 'data-path': e.name.toLowerCase() }, h('th', { scope: 'row' }, h('a', { href: link(e.name) }, shortName(e.name))),
      h('td', {}, e.status), h('td', { class: 'number' }, h('a', { href: link(e.name, 'rules') }, count(e.rules ?? 0))),
      numbers.map(([name]) => h('td', { class: 'number', 'data-count': name })), h('td', {}, e.forwardTo ?? ''));
    this.fill(line, e);
    return line;
  }

  fill(line, e) {
    for (const cell of line.querySelectorAll('[data-count]')) {
      const n = e.counts?.[cell.dataset.count];
      cell.textContent = count(n);
      cell.classList.toggle('bad', cell.dataset.count === 'deadLetter' && n > 0);
    }
  }

  refresh() {
    for (const line of this.querySelectorAll('tr[data-path]')) {
      const row = rows.get(line.dataset.path);
      if (row && !row.missing) {
        this.fill(line, row);
      }
    }
  }
}

customElements.define('bb-subscriptions', Subscriptions);
