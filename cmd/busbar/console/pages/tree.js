// The list of entities at the side: queues, and topics with their subscriptions and rules, with counts.

import { atom, everywhere, list, may, session } from './api.js';
import { View, button, count, h, note, problem } from './dom.js';
import { rows, watch } from './live.js';
import { rulesOf } from './rulexml.js';

const pageSize = 100;

/** link is where the page of an entity is. */
export function link(path, tab) {
  return `#/entity/${encodeURIComponent(path)}${tab ? `/${tab}` : ''}`;
}

/** shortName is that of a subscription without its topic. */
export function shortName(path) {
  return path.replace(/^.*\/subscriptions\//i, '');
}

const signs = { queue: ['▤', 'Queue'], topic: ['◈', 'Topic'], subscription: ['↳', 'Subscription'] };

/** sign is the mark of a kind, with its name for screen readers. */
export function sign(kind) {
  const [mark, name] = signs[kind] ?? signs.queue;
  return h('span', { class: 'sign', title: name }, h('span', { 'aria-hidden': 'true' }, mark), h('span', { class: 'unseen' }, name));
}

class Tree extends View {
  open() {
    this.items = h('ul', { class: 'items' });
    this.more = h('div', {});
    this.search = h('input', { type: 'search', placeholder: 'Search  /', 'aria-label': 'Search entities', oninput: () => this.typed() });
    this.opened = new Map();
    this.found = [];
    addEventListener('entities-changed', () => this.load(), { signal: this.signal });
    addEventListener('hashchange', () => this.mark(), { signal: this.signal });
    if (!everywhere()) {
      this.alone();
      return;
    }
    this.show(h('nav', { 'aria-label': 'Entities' }, h('div', { class: 'search' }, this.search), this.items, this.more,
      h('p', { class: 'make' }, h('a', { href: '#/create/queue' }, '+ Queue'), h('a', { href: '#/create/topic' }, '+ Topic'))));
    this.load();
  }

  /** alone is for a session that may not list: the entities that it has rights on, and one that the user names. */
  alone() {
    const name = h('input', { 'aria-label': 'Path of an entity', placeholder: 'queue, topic or path', value: session.scope ?? '' });
    const go = (e) => {
      e.preventDefault();
      if (name.value.trim()) {
        location.hash = link(name.value.trim().replace(/^\/+|\/+$/g, ''));
      }
    };
    this.show(h('nav', { 'aria-label': 'Entities' }, h('p', { class: 'note' }, 'You may not list entities. Name one.'),
      h('form', { class: 'search', onsubmit: go }, name, h('button', { type: 'submit' }, 'Open')), this.items));
    const mine = session.scope ? [session.scope] : (session.entities ?? []).map((e) => e.path);
    this.items.append(...mine.map((path) => h('li', {}, h('a', { href: link(path) }, path))));
    if (mine.length > 0 && location.hash.replace(/^#\/?/, '') === '') {
      location.hash = link(mine[0]);
    }
  }

  typed() {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.load(), 200);
  }

  async load(skip = 0) {
    try {
      const got = await list({ search: this.search.value.trim(), skip, top: pageSize, counts: false }, this.latest());
      this.found = skip ? [...this.found, ...got.entities] : got.entities;
      this.total = got.total;
      this.draw(got.next);
      this.listen();
    } catch (error) {
      if (error.name !== 'AbortError') {
        this.more.replaceChildren(problem(error));
      }
    }
  }

  listen() {
    this.off?.();
    const below = [...this.opened.values()].flat();
    const paths = [...this.found, ...below].slice(0, 180).map((e) => e.name);
    this.off = watch({ paths }, () => this.counts());
    this.until(this.off);
  }

  draw(next) {
    this.items.replaceChildren(...this.found.map((e) => this.item(e)));
    this.more.replaceChildren(this.found.length === 0 ? note('There is nothing here.') : '',
      next ? button(`More of ${count(this.total)}`, () => this.load(next), { class: 'quiet' }) : '');
    this.mark();
    this.counts();
  }

  item(e) {
    const label = h('a', { href: link(e.name), title: e.name }, sign(e.kind), h('span', { class: 'name' }, shortName(e.name)),
      h('span', { class: 'counts', 'data-path': e.name.toLowerCase() }));
    if (e.kind !== 'topic' && e.kind !== 'subscription') {
      return h('li', {}, label);
    }
    const below = h('ul', { hidden: true });
    const what = e.kind === 'topic' ? 'Subscriptions' : 'Rules';
    const toggle = h('button', { type: 'button', class: 'toggle', 'aria-expanded': 'false', 'aria-label': `${what} of ${e.name}`,
      onclick: () => this.toggle(e, toggle, below) }, '▸');
    const item = h('li', { class: 'opens' }, toggle, label, below);
    if (this.opened.has(e.name)) {
      this.toggle(e, toggle, below);
    }
    return item;
  }

  async toggle(e, toggle, below) {
    const opens = below.hidden;
    below.hidden = !opens;
    toggle.textContent = opens ? '▾' : '▸';
    toggle.setAttribute('aria-expanded', String(opens));
    if (!opens) {
      this.opened.delete(e.name);
      return;
    }
    this.opened.set(e.name, []);
    try {
      await (e.kind === 'topic' ? this.subscriptions(e, below) : this.rules(e, below));
    } catch (error) {
      below.replaceChildren(h('li', {}, error.message));
    }
    this.mark();
  }

  async subscriptions(e, below) {
    const got = await list({ topic: e.name, top: 1000, counts: false }, this.signal);
    this.opened.set(e.name, got.entities);
    below.replaceChildren(...got.entities.map((s) => this.item(s)),
      h('li', {}, h('a', { class: 'make', href: `#/create/subscription/${encodeURIComponent(e.name)}` }, '+ Subscription')));
    this.listen();
    this.counts();
  }

  async rules(e, below) {
    const all = rulesOf(await atom('GET', `${e.name}/Rules`, null, { signal: this.signal }));
    below.replaceChildren(...all.map((r) => h('li', { class: 'rule' }, h('a', { href: link(e.name, 'rules') },
      h('span', { class: 'sign', 'aria-hidden': 'true' }, '⑂'), h('span', { class: 'name' }, r.name)))));
  }

  counts() {
    for (const place of this.querySelectorAll('.counts')) {
      const row = rows.get(place.dataset.path);
      const c = row?.counts;
      const text = c && row.kind !== 'topic' ? count(c.active) : '';
      const dead = c?.deadLetter ? h('span', { class: 'dead', title: 'dead letters' }, ` ✝${count(c.deadLetter)}`,
        h('span', { class: 'unseen' }, ' dead letters')) : '';
      place.replaceChildren(h('span', { title: 'active messages' }, text), dead);
    }
  }

  mark() {
    const at = location.hash.split('/').slice(0, 3).join('/').toLowerCase();
    for (const a of this.querySelectorAll('a')) {
      if (a.getAttribute('href').toLowerCase() === at && a.closest('.items')) {
        a.setAttribute('aria-current', 'page');
      } else {
        a.removeAttribute('aria-current');
      }
    }
  }
}

customElements.define('bb-tree', Tree);
